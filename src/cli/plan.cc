// glint plan: the steps of a forward pass, the levers on them, the buffers and the bytes.
#include "plan/plan.h"

#include <fmt/core.h>

#include <memory>

#include "base/thread_pool.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/subcommand.h"
#include "cpu/backend.h"
#include "model/model_data.h"
#include "plan/print.h"

namespace glint::cli {
namespace {

struct PlanChoice {
  ModelChoice model;
  std::optional<int64_t> rows;
  bool mtp = false, json = false, levers = false;
};

Result<model::ModelData> Load(const PlanChoice& o) {
  ProgressBar bar(o.model.synthetic ? "making weights" : "loading", Unit::kBytes);
  model::LoadOptions options;
  options.mtp = o.mtp;
  options.progress = bar.Callback();
  if (o.model.synthetic) return model::LoadSynthetic(*o.model.synthetic, options);
  const auto path = o.model.Path();
  if (!path.ok()) return path.status();
  return model::Load(*path, options);
}

Result<int> ShowPlan(const PlanChoice& o) {
  if (o.levers) {
    const Status status = Print(plan::DescribeLevers(cpu::Levers(), nullptr));
    if (!status.ok()) return status;
    return 0;
  }
  const auto data = Load(o);
  if (!data.ok()) return data.status();
  if (o.mtp && data->hparams.nextn_layers == 0) {
    return Status(Code::kBadInput, fmt::format("{} has no MTP block", data->origin));
  }
  const auto backend = cpu::MakeBackend(data->hparams, data->weights,
                                        static_cast<int>(o.model.threads.value_or(AvailableCores())));
  plan::PlanRequest request;
  request.hparams = &data->hparams;
  request.weights = &data->weights;
  request.levers = backend->levers();
  request.choice = plan::WithEnvironment({SplitNames(o.model.with), SplitNames(o.model.without)});
  request.pass = o.mtp ? plan::Pass::kMtp : plan::Pass::kTrunk;
  request.rows = static_cast<int>(o.rows.value_or(1));
  const auto plan = plan::MakePlan(request);
  if (!plan.ok()) return plan.status();
  const Status status = Print(o.json ? plan::DescribeJson(*plan, request) : plan::Describe(*plan, request));
  if (!status.ok()) return status;
  return 0;
}

}  // namespace

Work DeclarePlan(Options& options) {
  auto o = std::make_shared<PlanChoice>();
  options.Value("--rows", "N", &o->rows, 1, 65536,
                "Tokens of the batch: 1 is decoding (the default), more a piece of a prompt");
  options.Flag("--mtp", &o->mtp, "The pass of the MTP block instead of the trunk's");
  options.Flag("--levers", &o->levers,
               "Only the table of levers: names, what they cover, whether this machine has them");
  options.Flag("--json", &o->json, "As JSON");
  o->model.DeclareSource(options);
  o->model.DeclareLevers(options);
  o->model.CpuOnly(options);
  options.Notes(
      "The plan is the CPU's, whatever GPU there is; `glint profile` names the levers that ran on one.");
  options.Examples({"glint plan", "glint plan --rows 256 --without all", "glint plan --levers",
                    "glint plan --synthetic tiny --json"});
  options.Check([o]() -> Status {
    if (o->levers && o->json)
      return {Code::kBadInput, "--levers has no JSON form; `glint plan --json` lists the levers too"};
    return {};
  });
  return [o] { return ShowPlan(*o); };
}

}  // namespace glint::cli
