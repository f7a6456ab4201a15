// The boundary between the host adapter and the kernels.
#pragma once
#include "config.h"
#include "hyla/extend.h"
#include "hyla/workspace.h"
#include "worklist.h"

namespace hyla::extend::sm90_latent {

// What a workspace holds; with a null layout base this counts its bytes.
struct Buffers {
  WorkList list;
  float *part_out, *part_lse;
};
Buffers place_buffers(WorkspaceLayout& layout, const Problem& problem, int sm_count, int forced_parts);

// Enqueues the list, the attention and the merge on the tensors' device.
Status launch(const Plan& plan, Shape shape, const Args& args, Workspace workspace, Stream stream);

}  // namespace hyla::extend::sm90_latent
