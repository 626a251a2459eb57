#include "cli/model_options.h"

#include <fmt/core.h>

#include <cstdlib>

#include "cli/default_model.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/terminal.h"
#include "cpu/backend.h"
#include "engine/gpu.h"
#include "engine/model_impl.h"
#include "model/glm_flash/synthetic_spec.h"

namespace glint::cli {
namespace {

Status CheckLevers(const std::vector<std::string>& given, bool all_allowed) {
  std::vector<std::string> known;
  for (const plan::Lever& lever : cpu::Levers()) known.emplace_back(lever.name);
  for (const plan::Lever& lever : engine::GpuLevers()) known.emplace_back(lever.name);
  if (all_allowed) known.emplace_back("all");
  for (const std::string& name : SplitNames(given)) {
    bool found = false;
    for (const std::string& candidate : known) found = found || candidate == name;
    if (found) continue;
    const std::string meant = Nearest(name, known);
    std::string list;
    for (const std::string& candidate : known) list += (list.empty() ? "" : ", ") + candidate;
    return {Code::kBadInput, fmt::format("unknown lever '{}'{}; there are: {}", name,
                                         meant.empty() ? "" : " (did you mean " + meant + "?)", list)};
  }
  return {};
}

}  // namespace

Status CheckLeverEnvironment() {
  for (const auto& [variable, all_allowed] :
       {std::pair("GLINT_WITH", false), std::pair("GLINT_WITHOUT", true)}) {
    const char* const given = std::getenv(variable);
    if (given == nullptr) continue;
    if (Status status = CheckLevers({given}, all_allowed); !status.ok())
      return {status.code(), fmt::format("${}: {}", variable, status.message())};
  }
  return {};
}

std::vector<std::string> SplitNames(const std::vector<std::string>& given) {
  std::vector<std::string> names;
  for (const std::string& list : given) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t comma = std::min(list.find(',', begin), list.size());
      if (comma > begin) names.push_back(list.substr(begin, comma - begin));
      begin = comma + 1;
    }
  }
  return names;
}

void ModelChoice::DeclareSource(Options& options) {
  options.Group("Model");
  options.Value("-m,--model", "PATH", &path,
                "GGUF file (any shard of a set) or Hugging Face directory; without it $GLINT_MODEL or the "
                "embedded model");
  options.Value(
      "--synthetic", "SPEC", &synthetic,
      "Random weights: SHAPE[,NAME=VALUE...], e.g. glm-5.3-flash,layers=6,experts=16,recipe=q4_k. " +
          model::DescribeSyntheticSpec());
  options.files().ReadsAll([this]() -> std::vector<std::string> {
    const auto where = Path();
    return synthetic || !where.ok() ? std::vector<std::string>() : std::vector{*where};
  });
  options.Check([this]() -> Status {
    if (path && synthetic) return {Code::kBadInput, "give either --model or --synthetic, not both"};
    if (synthetic) {
      const auto spec = model::ParseSynthetic(*synthetic);
      if (!spec.ok()) return {Code::kBadInput, "--synthetic: " + spec.status().message()};
    }
    return CheckLeverEnvironment();
  });
}

void ModelChoice::DeclareLevers(Options& options) {
  options.Group("Execution");
  options.Value("--device", "NAME", &device,
                "cpu, or a GPU: cuda, cuda:N; without it a GPU if there is one that can take the model");
  options.Value("--threads", "N", &threads, 1, 1024,
                "Threads to compute with; without it one per available core");
  options.List("--with", "NAME,...", &with,
               "Levers to switch on (`glint plan --levers` lists them); also $GLINT_WITH");
  options.List("--without", "NAME,...", &without, "Levers to switch off, or 'all'; also $GLINT_WITHOUT");
  options.Check([this] {
    if (device) {
      if (Status status = engine::CheckDevice(*device); !status.ok())
        return Status(status.code(), "--device: " + status.message());
    }
    const Status status = CheckLevers(with, false);
    return status.ok() ? CheckLevers(without, true) : status;
  });
}

Result<std::string> ModelChoice::Path() const {
  if (path) return *path;
  return DefaultModel();
}

std::string ModelChoice::Source() const {
  if (synthetic) return *synthetic;
  const auto found = Path();
  return found.ok() ? *found : "";
}

ModelOptions ModelChoice::Settings() const {
  ModelOptions options;
  options.device = device.value_or("auto");
  options.threads = static_cast<int>(threads.value_or(0));
  options.with = SplitNames(with);
  options.without = SplitNames(without);
  return options;
}

void ModelChoice::CpuOnly(Options& options) {
  options.Check([this]() -> Status {
    if (device.value_or("auto") == "auto" || *device == "cpu") return {};
    return {Code::kBadInput,
            "--device: this command knows the CPU only; leave the option out, or say --device cpu"};
  });
}

Result<Model> ModelChoice::Open(bool mtp_if_any, bool notes,
                                const std::function<void(uint64_t, uint64_t)>& also) const {
  ProgressBar bar(synthetic ? "making weights" : "loading", Unit::kBytes);
  ModelOptions options = Settings();
  options.mtp_if_any = mtp_if_any;
  options.progress = [&also, show = bar.Callback()](uint64_t done, uint64_t total) {
    if (also) also(done, total);
    return show(done, total);
  };
  const auto where = synthetic ? Result<std::string>(*synthetic) : Path();
  if (!where.ok()) return where.status();
  auto model = synthetic ? Model::Synthetic(*where, options) : Model::Open(*where, options);
  bar.Finish();
  if (model.ok() && notes) {
    for (const std::string& note : model->impl()->data.notes) {
      PrintError(fmt::format("note: {}: {}\n", TerminalText(*where), TerminalText(note)));
    }
  }
  return model;
}

}  // namespace glint::cli
