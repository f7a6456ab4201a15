// Result files: the header that says what was measured on what, and rows.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "hyla/device.h"
#include "hyla/status.h"

namespace hyla::cli {

// {"device", "driver", "commit", "dirty", "date", "versions", "ceilings", "rows": []}
nlohmann::json new_record(const DeviceCaps& caps);
Status write_record(const std::string& path, const nlohmann::json& record);
Result<nlohmann::json> read_record(const std::string& path);
int64_t available_memory();  // bytes of main memory that can be had without swapping

}  // namespace hyla::cli
