#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/record.h"
#include "cli/report.h"

namespace hyla::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string shape;
  BackendChoice choice;
  bool as_json = false;
};

// Independent pieces of work the plan gives the device, as far as a plan says.
int64_t pieces_of(const kda::Plan& p) { return std::max<int64_t>(p.problem.N, 1) * p.problem.HV * std::max(p.segments, 1) * std::max(p.v_split, 1); }
int64_t pieces_of(const extend::Plan& p) {
  const int64_t rows = std::max<int64_t>(p.problem.max_extend, 1) * (p.problem.Hq / std::max<int64_t>(p.problem.Hkv, 1));  // heads of a group share tiles
  const int64_t tiles = p.tile_m > 0 ? (rows + p.tile_m - 1) / p.tile_m : 1;
  return std::max<int64_t>(p.problem.batch, 1) * p.problem.Hkv * tiles * std::max(p.splits, 1);
}
int splits_of(const kda::Plan& p) { return p.segments; }
int splits_of(const extend::Plan& p) { return p.splits; }
// The longest chain of dependent steps of a plan, as a problem of its own: one sequence and head, or one query tile.
bench::KdaShape chain_of(bench::KdaShape s, const kda::Plan&) {
  if (!s.seqlens.empty()) s.T = *std::max_element(s.seqlens.begin(), s.seqlens.end());
  s.seqlens.clear();
  s.B = s.H = s.HV = 1;
  return s;
}
bench::ExtendShape chain_of(bench::ExtendShape s, const extend::Plan& p) {
  const int64_t group = std::max<int64_t>(s.Hq / std::max<int64_t>(s.Hkv, 1), 1), rows = std::clamp<int64_t>(p.tile_m / group, 1, std::max<int64_t>(s.n, 1));
  s.prefix += s.n - rows, s.n = rows, s.batch = s.Hkv = 1, s.Hq = group;
  return s;
}

struct Share {
  std::string what;  // "memory"
  double share;      // of the measured time that this alone would take
  std::string evidence, advice;
};

template <class Shape>
Result<json> profile(const Shape& shape, testing::Backend& backend, const BackendChoice& choice) {
  auto host = bench::make_inputs(shape);
  using Args = std::decay_t<decltype(host.args)>;
  auto prepared = Prepared<Args>::make(host, backend, choice);
  if (!prepared.ok()) return prepared.status();
  HYLA_RETURN_IF_ERROR(prepared->compute());
  const auto checks = bench::check_sample(host.args);
  if (!all_pass(checks))
    return Status(Code::kDevice, prepared->execution().variant, "a result within the tolerance of float64",
                  fmt::format("relative error {:.2e}", checks[0].rel_l2));
  const auto timing = time_case(host, backend, choice, prepared.value());
  if (!timing.ok()) return timing.status();

  const DeviceCaps caps = backend.caps();
  const bool cpu = caps.kind == DeviceKind::kCpu;
  const auto& plan_made = prepared->the_plan();
  const bench::Work work = bench::work_of(shape);
  const double ms = timing->graph_ms, peak = caps.tensor_flop_per_clock * caps.sm_count * caps.clock_ghz * 1e9;
  const int64_t pieces = pieces_of(plan_made);
  const double waves = static_cast<double>(pieces) / caps.sm_count, busy = waves / std::max(1.0, std::ceil(waves));
  const char* unit = cpu ? "threads" : "SMs";

  std::vector<Share> shares;
  shares.push_back({"memory", work.bytes / (caps.copy_tbs * 1e12) / ms * 1e3,
                    fmt::format("{:.3g} GB/s of {:.3g} GB/s copy rate", work.bytes / ms / 1e6, caps.copy_tbs * 1e3),
                    "only fewer bytes help: 16-bit states, fewer checkpoints"});
  shares.push_back({cpu ? "arithmetic" : "tensor cores", work.flop / peak / ms * 1e3,
                    fmt::format("{:.3g} of {:.3g} TFLOP/s, useful work only", work.flop / ms / 1e9, peak / 1e12),
                    "the arithmetic units are busy: this is as fast as this chip goes"});
  if (!cpu) {
    const double launch = std::max(0.0, timing->call_ms - ms);
    shares.push_back({"launch", std::max(caps.graph_node_us / 1e3 / ms, launch / std::max(timing->call_ms, 1e-9)),
                      fmt::format("a call takes {:.1f} us, in a graph {:.1f} us; the host needs {:.1f} us; an empty graph node {:.1f} us",
                                  timing->call_ms * 1e3, ms * 1e3, timing->host_us, caps.graph_node_us),
                      "capture the calls in a CUDA graph"});
  }
  shares.push_back({cpu ? "idle threads" : "idle SMs", 1 - std::min(1.0, busy),
                    fmt::format("{} pieces of work on {} {}: {:.2f} waves", pieces, caps.sm_count, unit, waves),
                    splits_of(plan_made) > 1 ? "already split; more tokens or heads in one call fill the device"
                                             : "more splits, or more sequences in one call, fill the device"});
  BackendChoice same = choice;
  same.variant = plan_made.variant, same.splits = splits_of(plan_made);
  const Shape chain = chain_of(shape, plan_made);
  auto chain_host = bench::make_inputs(chain);
  if (auto alone = Prepared<Args>::make(chain_host, backend, same); alone.ok())
    if (const auto time = time_case(chain_host, backend, same, alone.value()); time.ok())
      shares.push_back({"chain", std::min(1.0, time->graph_ms / ms),
                        fmt::format("one chain alone ({}, {} splits) takes {}", name_of(chain), same.splits, milliseconds(time->graph_ms)),
                        "shorter chains: more segments or parts, where the device has room"});
  std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.share > b.share; });

  // A limit that explains less than half of the time does not bound it.
  if (shares[0].share < 0.5)
    shares.insert(shares.begin(),
                  {"inside the kernel", 1 - shares[0].share, fmt::format("no limit below explains more than {:.0f}% of the time", shares[0].share * 100),
                   "instruction issue, synchronisation or conversions: look at the kernel's counters"});

  // What else the planner could take, measured.
  json others = json::array();
  for (const Candidate& candidate : plan_made.candidates) {
    json entry = {{"variant", candidate.variant}, {"config", candidate.config}, {"legal", candidate.legal}, {"reason", candidate.reason}};
    if (candidate.legal) entry["modelled_ms"] = candidate.modelled_us / 1e3;
    const bool seen = std::any_of(others.begin(), others.end(), [&](const json& o) { return o["variant"] == candidate.variant && o.contains("graph_ms"); });
    if (candidate.legal && candidate.variant != plan_made.variant && !seen) {
      BackendChoice forced = choice;
      forced.variant = candidate.variant;
      auto other = Prepared<Args>::make(host, backend, forced);
      if (other.ok() && other->compute().ok() && all_pass(bench::check_sample(host.args)))
        if (const auto time = time_case(host, backend, forced, other.value()); time.ok()) entry["graph_ms"] = time->graph_ms;
    }
    others.push_back(entry);
  }
  json evidence = json::array();
  for (const Share& share : shares) evidence.push_back({{"what", share.what}, {"share", share.share}, {"evidence", share.evidence}, {"advice", share.advice}});
  return json{{"op", op_name(shape)},
              {"shape", to_json(shape)},
              {"device", caps.name},
              {"variant", plan_made.variant},
              {"plan", plan_made.str()},
              {"graph_ms", ms},
              {"call_ms", timing->call_ms},
              {"host_us", timing->host_us},
              {"spread", timing->spread},
              {"modelled_ms", plan_made.modelled_us / 1e3},
              {"floor_ms", bench::floor_ms(work, caps)},
              {"rel_l2", checks[0].rel_l2},
              {"bottleneck", shares[0].what},
              {"evidence", evidence},
              {"candidates", others}};
}

template <class Shape>
int show(const Shape& shape, const Options& options) {
  auto backend = open_backend(options.choice.backend);
  if (!backend.ok()) return fail(backend.status());
  const auto result = profile(shape, *backend.value(), options.choice);
  if (!result.ok()) return fail(result.status());
  const json& p = result.value();
  if (options.as_json) {
    fmt::print("{}\n", p.dump(1));
    return kOk;
  }
  fmt::print("{} on {}\nplan        {}\ntime        {} (modelled {}, floor {}, spread {:.0f}%)\nbottleneck  {}: {}; {}\n\n", name_of(shape),
             p["device"].get<std::string>(), p["plan"].get<std::string>(), milliseconds(p["graph_ms"]), milliseconds(p["modelled_ms"]),
             milliseconds(p["floor_ms"]), p["spread"].get<double>() * 100, p["bottleneck"].get<std::string>(), p["evidence"][0]["evidence"].get<std::string>(),
             p["evidence"][0]["advice"].get<std::string>());
  Table evidence({"limit", "share of the time", "evidence"});
  for (const json& e : p["evidence"]) evidence.add({e["what"], fmt::format("{:.0f}%", e["share"].get<double>() * 100), e["evidence"]});
  Table others({"candidate", "config", "modelled", "measured", "reason"});
  for (const json& c : p["candidates"])
    others.add({c["variant"], c["config"], c.contains("modelled_ms") ? milliseconds(c["modelled_ms"]) : "-",
                c.contains("graph_ms") ? milliseconds(c["graph_ms"]) : "-", c["reason"]});
  fmt::print("{}\n{}", evidence.str(3), others.str(5));
  return kOk;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("profile", "Name what bounds a problem's time, with the evidence, and measure what else the planner could have taken");
  command->require_subcommand(1);
  for (const bool is_kda : {true, false}) {
    auto* op = command->add_subcommand(is_kda ? "kda" : "extend", is_kda ? "Kimi Delta Attention" : "extend attention");
    auto options = std::make_shared<Options>();
    op->add_option("--shape", options->shape, "as for `hyla plan`")->required();
    op->add_flag("--json", options->as_json, "print JSON");
    add_backend_options(*op, options->choice);
    op->callback([&action, options, is_kda] {
      action = [options, is_kda] {
        if (is_kda) {
          const auto shape = bench::parse_kda_shape(options->shape);
          return shape.ok() ? show(shape.value(), *options) : fail(shape.status());
        }
        const auto shape = bench::parse_extend_shape(options->shape);
        return shape.ok() ? show(shape.value(), *options) : fail(shape.status());
      };
    });
  }
}

}  // namespace hyla::cli
