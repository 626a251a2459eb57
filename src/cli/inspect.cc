// glint inspect: what is in a model, what its bytes are for, and where it fits.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>

#include "base/memory.h"
#include "base/printable.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "model/census.h"
#include "model/fingerprint.h"
#include "model/glm_flash/hf_checkpoint.h"
#include "model/model_data.h"
#include "text/fingerprint.h"
#include "text/tokenizer.h"

namespace glint::cli {
namespace {

constexpr size_t kShownElements = 6;               // of an array
constexpr size_t kShownBytes = 160;                // of a string
constexpr uint64_t kFewBytes = uint64_t{8} << 30;  // checkpoints up to this size are bound on trial

struct InspectChoice {
  ModelChoice model;
  std::optional<std::string> what, key;
  bool tensors = false, json = false;
};

struct Tensor {
  std::string name, type;
  std::vector<uint64_t> shape;  // as the file writes it
  uint64_t bytes = 0, offset = 0;
  int file = 0;
};

// Everything that is shown, gathered before anything is printed.
struct Report {
  std::string name, form;  // "GGUF v3", "safetensors", "synthetic"
  std::vector<std::string> paths;
  std::optional<gguf::File> gguf;  // keeps the metadata's strings alive
  std::vector<Tensor> tensors;
  bool shape_fastest_first = true;
  std::optional<model::Census> census;
  std::optional<model::HParams> hparams;
  std::string dialect;
  std::string fingerprint, tokenizer;  // fingerprints of trunk and vocabulary; empty where there are none
  std::vector<std::string> notes;
  Status runnable;  // why not, if not
};

gguf::BlockSize BlockSizeOf(uint32_t type) {
  const quant::Format* format = quant::Find(static_cast<quant::Type>(type));
  if (!format) return {0, 0};
  return {static_cast<uint32_t>(format->block_weights), static_cast<uint32_t>(format->block_bytes)};
}

std::string TypeName(uint32_t type) {
  if (quant::Find(static_cast<quant::Type>(type)))
    return std::string(quant::Name(static_cast<quant::Type>(type)));
  return fmt::format("type {}", type);
}

// ---- gathering

void Bind(const std::string& path, Report& report) {
  auto data = model::Load(path);
  if (!data.ok()) {
    report.runnable = data.status();
    return;
  }
  if (data->tokenizer) {
    report.tokenizer = text::Fingerprint(*data->tokenizer);
    const auto tokenizer = text::Tokenizer::Create(std::move(*data->tokenizer));
    if (!tokenizer.ok()) {
      report.runnable = {tokenizer.status().code(),
                         fmt::format("{}: {}", path, tokenizer.status().message())};
      return;
    }
  }
  report.hparams = data->hparams;
  report.fingerprint = model::TrunkFingerprint(data->hparams, data->weights);
  report.dialect = data->dialect;
  report.notes = data->notes;
}

void Count(Result<model::Census> census, Report& report) {
  if (census.ok())
    report.census = std::move(*census);
  else if (report.runnable.ok())
    report.runnable = census.status();
}

Result<Report> GatherGguf(const std::string& path) {
  auto file = gguf::File::Open(path, BlockSizeOf);
  if (!file.ok()) return file.status();
  Report report;
  report.name = path;
  report.form = fmt::format("GGUF v{}", file->version());
  report.paths = file->paths();
  for (const gguf::TensorInfo& t : file->tensors()) {
    report.tensors.push_back(
        {t.name, TypeName(t.type), {t.ne.begin(), t.ne.begin() + t.dims}, t.bytes, t.offset, t.file});
  }
  Bind(path, report);
  Count(model::TakeCensus(path), report);
  report.gguf = std::move(*file);
  return report;
}

Result<Report> GatherSafetensors(const std::string& path, bool directory) {
  auto file = directory ? gguf::SafeTensors::OpenDirectory(path) : gguf::SafeTensors::OpenFile(path);
  if (!file.ok()) {
    const Status checkpoint = directory ? model::CheckIsCheckpoint(path) : Status();
    return checkpoint.ok() ? file.status() : checkpoint;
  }
  Report report;
  report.name = path;
  report.form = "safetensors";
  report.shape_fastest_first = false;
  report.paths = file->paths();
  uint64_t bytes = 0;
  for (const gguf::SafeTensor& t : file->tensors()) {
    report.tensors.push_back({t.name, t.dtype, t.shape, t.bytes, t.offset, t.file});
    bytes += t.bytes;
  }
  if (!directory) {
    report.runnable = {Code::kUnsupported,
                       path + ": a lone safetensors file says nothing of the model: name its directory"};
    return report;
  }
  if (bytes <= kFewBytes)
    Bind(path, report);
  else
    report.notes.push_back("too large to be bound on trial: shapes were not checked");
  Count(model::TakeCensus(path), report);
  return report;
}

Result<Report> GatherSynthetic(const std::string& spec) {
  Report report;
  report.name = spec;
  report.form = "synthetic";
  auto census = model::SyntheticCensus(spec);
  if (!census.ok()) return census.status();
  for (const model::CensusTensor& t : census->tensors) {
    report.tensors.push_back({t.name, TypeName(static_cast<uint32_t>(t.type)), t.ne, t.bytes, 0, 0});
  }
  report.census = std::move(*census);
  return report;
}

Result<Report> Gather(const InspectChoice& o) {
  if (o.model.synthetic) return GatherSynthetic(*o.model.synthetic);
  std::string path;
  if (o.what) {
    path = *o.what;
  } else {
    auto given = o.model.Path();
    if (!given.ok()) return given.status();
    path = *given;
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return GatherSafetensors(path, true);
  if (path.ends_with(".safetensors")) return GatherSafetensors(path, false);
  return GatherGguf(path);
}

// ---- metadata

std::string Show(const gguf::Value& value);

std::string ShowElements(const gguf::Array& array) {
  std::string out = "[";
  for (size_t i = 0; i < std::min(array.values.size(), kShownElements); ++i)
    out += (i ? ", " : "") + Show(array.values[i]);
  if (array.values.size() > kShownElements)
    out += fmt::format(", ... {} in all", Grouped(array.values.size()));
  return out + "]";
}

// One line, with nothing in it that could steer a terminal.
std::string Show(const gguf::Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) {
    if (text->size() <= kShownBytes) return "\"" + Printable(*text) + "\"";
    size_t cut = kShownBytes;
    while (cut > 0 && (static_cast<unsigned char>((*text)[cut]) & 0xc0) == 0x80)
      --cut;  // not inside a character
    return fmt::format("\"{}\"... {} bytes in all", Printable(text->substr(0, cut)), Grouped(text->size()));
  }
  if (const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(&value.data))
    return ShowElements(**array);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value.data)) {
    // A float32 is shown by its own shortest digits, not by those of the double it became.
    if (value.kind == gguf::Kind::kF32) return fmt::format("{}", static_cast<float>(*number));
    return fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return fmt::format("{}", *number);
  return fmt::format("{}", std::get<int64_t>(value.data));
}

std::string KindOf(const gguf::Value& value) {
  const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(&value.data);
  if (!array) return std::string(Name(value.kind));
  return fmt::format("{}[{}]", Name((*array)->element), (*array)->values.size());
}

// One value whole: strings as they are, arrays a line for each element.
std::string Whole(const gguf::Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) return std::string(*text);
  const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(&value.data);
  if (!array) return Show(value) + "\n";
  std::string out;
  for (const gguf::Value& element : (*array)->values) {
    const auto* text = std::get_if<std::string_view>(&element.data);
    out += (text ? Printable(*text) : Show(element)) + "\n";
  }
  return out;
}

void Write(JsonWriter& json, const gguf::Value& value) {
  if (const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(&value.data)) {
    json.BeginArray(true);
    for (const gguf::Value& element : (*array)->values) Write(json, element);
    json.EndArray();
  } else {
    std::visit(
        [&](const auto& v) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::shared_ptr<const gguf::Array>>)
            json.Value(v);
        },
        value.data);
  }
}

// ---- tables

std::string Shape(const Tensor& tensor) {
  std::string out = "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) out += fmt::format("{}{}", i ? ", " : "", tensor.shape[i]);
  return out + "]";
}

std::string TensorTable(const Report& report) {
  size_t name = 4, type = 4, shape = 5;
  for (const Tensor& t : report.tensors) {
    name = std::max(name, Printable(t.name).size());
    type = std::max(type, t.type.size());
    shape = std::max(shape, Shape(t).size());
  }
  const bool several = report.paths.size() > 1;
  std::string out = fmt::format("\nTensors (shapes: {} dimension first; offsets in bytes)\n",
                                report.shape_fastest_first ? "fastest" : "slowest");
  out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>15}  {:>15}{}\n", "name", name, "type", type, "shape",
                     shape, "bytes", "offset", several ? "  file" : "");
  for (const Tensor& t : report.tensors) {
    out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>15}  {:>15}", Printable(t.name), name, Printable(t.type),
                       type, Shape(t), shape, Grouped(t.bytes),
                       report.form == "synthetic" ? "-" : Grouped(t.offset));
    if (several) out += fmt::format("  {}", t.file + 1);
    out += '\n';
  }
  return out;
}

struct TypeTotal {
  uint64_t tensors = 0, bytes = 0;
};

std::map<std::string, TypeTotal> ByType(const Report& report) {
  std::map<std::string, TypeTotal> types;
  for (const Tensor& t : report.tensors) {
    TypeTotal& total = types[t.type];
    ++total.tensors;
    total.bytes += t.bytes;
  }
  return types;
}

struct RoleTotal {
  uint64_t tensors = 0, bytes = 0, per_token = 0;
};

std::array<RoleTotal, static_cast<size_t>(model::Role::kCount)> ByRole(const model::Census& census) {
  std::array<RoleTotal, static_cast<size_t>(model::Role::kCount)> roles{};
  for (const model::CensusTensor& t : census.tensors) {
    RoleTotal& total = roles[static_cast<size_t>(t.role)];
    ++total.tensors;
    total.bytes += t.bytes;
    total.per_token += t.per_token;
  }
  return roles;
}

std::string RoleTable(const model::Census& census) {
  std::string out = "\nWhat its bytes are for\n";
  out += fmt::format("  {:<18}{:>9}{:>20}{:>20}\n", "role", "tensors", "bytes", "read a token");
  const auto roles = ByRole(census);
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i].tensors == 0) continue;
    out += fmt::format("  {:<18}{:>9}{:>20}{:>20}\n", model::Name(static_cast<model::Role>(i)),
                       roles[i].tensors, Grouped(roles[i].bytes), Grouped(roles[i].per_token));
  }
  out += fmt::format("  {:<18}{:>9}{:>20}{:>20}\n", "total", census.tensors.size(),
                     Grouped(census.total_bytes), Grouped(census.per_token));
  out += fmt::format("  trunk {} ({} of them routed experts), MTP block {}\n", Bytes(census.trunk_bytes),
                     Bytes(census.trunk_expert_bytes), Bytes(census.mtp_bytes));
  out += fmt::format("  {} parameters\n", Grouped(census.parameters));
  return out;
}

constexpr std::array<uint64_t, 5> kCards = {24, 32, 80, 141, 180};  // GB

struct Fit {
  int64_t context;
  uint64_t state, total;
};

// Contexts that people ask for, up to what the model was made for.
std::vector<Fit> Fits(const Report& report) {
  const int64_t most = report.hparams ? report.hparams->context_length : 0;
  std::vector<int64_t> contexts;
  for (const int64_t n : {4096, 32768, 131072, 262144, 1048576}) {
    if (most <= 0 || n <= most) contexts.push_back(n);
  }
  if (contexts.empty()) contexts.push_back(most);
  std::vector<Fit> fits;
  const model::Census& census = *report.census;
  for (const int64_t n : contexts) {
    const uint64_t state =
        census.fixed_state_bytes + census.bytes_per_context_token * static_cast<uint64_t>(n);
    fits.push_back({n, state, census.total_bytes + state});
  }
  return fits;
}

std::string FitTable(const Report& report) {
  const model::Census& census = *report.census;
  const auto room = AvailableMemory();
  std::string out = fmt::format(
      "\nWhere it fits (weights, and the state of one conversation: {} fixed and {} a token)\n"
      "  {:>9}{:>12}{:>12}  {:<10}",
      Bytes(census.fixed_state_bytes), Bytes(census.bytes_per_context_token), "context", "state", "in all",
      "here");
  for (const uint64_t card : kCards) out += fmt::format("{:>8}", fmt::format("{} GB", card));
  out += '\n';
  for (const Fit& fit : Fits(report)) {
    out += fmt::format("  {:>9}{:>12}{:>12}  {:<10}", Grouped(static_cast<uint64_t>(fit.context)),
                       Bytes(fit.state), Bytes(fit.total), fit.total <= room.bytes ? "yes" : "no");
    for (const uint64_t card : kCards)
      out += fmt::format("{:>8}", fit.total <= card * 1000000000 ? "yes" : "no");
    out += '\n';
  }
  out += fmt::format("  here: {} ({})\n", Bytes(room.bytes), room.limited_by);
  return out;
}

// ---- the two forms of output

std::string Text(const Report& report, bool all_tensors) {
  uint64_t bytes = 0;
  for (const Tensor& t : report.tensors) bytes += t.bytes;
  std::string out = fmt::format("{}\n  {}", Printable(report.name), report.form);
  if (!report.dialect.empty() && report.gguf) out += fmt::format(", dialect {}", report.dialect);
  if (report.paths.size() > 1) out += fmt::format(", {} files", report.paths.size());
  if (report.gguf) out += fmt::format(", {} keys", report.gguf->metadata().size());
  out += fmt::format(", {} tensors, {} bytes of tensor data ({})\n", report.tensors.size(), Grouped(bytes),
                     Bytes(bytes));
  if (!report.fingerprint.empty()) out += fmt::format("  fingerprint {}", report.fingerprint);
  if (!report.fingerprint.empty() && !report.tokenizer.empty())
    out += fmt::format(", tokenizer {}", report.tokenizer);
  if (!report.fingerprint.empty()) out += '\n';

  if (report.gguf && !report.gguf->metadata().empty()) {
    out += "\nMetadata\n";
    size_t key_width = 0, kind_width = 0;
    for (const auto& [key, value] : report.gguf->metadata()) {
      key_width = std::max(key_width, std::min<size_t>(Printable(key).size(), 50));
      kind_width = std::max(kind_width, KindOf(value).size());
    }
    for (const auto& [key, value] : report.gguf->metadata()) {
      out += fmt::format("  {:<{}}  {:<{}}  {}\n", Printable(key), key_width, KindOf(value), kind_width,
                         Show(value));
    }
  }
  if (all_tensors) out += TensorTable(report);
  out += "\nTypes\n";
  for (const auto& [type, total] : ByType(report)) {
    out += fmt::format("  {:<18}{:>9}{:>20}\n", Printable(type), total.tensors, Grouped(total.bytes));
  }
  if (report.census) {
    out += RoleTable(*report.census);
    out += FitTable(report);
  }
  for (const std::string& note : report.notes) out += "\nNote: " + TerminalText(note) + "\n";
  if (!report.runnable.ok())
    out += "\nglint cannot run it: " + TerminalText(report.runnable.message()) + "\n";
  return out;
}

std::string Json(const Report& report) {
  JsonWriter json;
  json.BeginObject()
      .Member("name", report.name)
      .Member("form", report.form)
      .Member("dialect", report.dialect);
  json.Key("files").BeginArray();
  for (const std::string& path : report.paths) json.Value(path);
  json.EndArray();
  json.Member("runnable", report.runnable.ok());
  if (!report.runnable.ok()) json.Member("reason", report.runnable.message());
  if (!report.fingerprint.empty()) json.Member("fingerprint", report.fingerprint);
  if (!report.tokenizer.empty()) json.Member("tokenizer_fingerprint", report.tokenizer);
  json.Key("notes").BeginArray();
  for (const std::string& note : report.notes) json.Value(note);
  json.EndArray();
  if (report.gguf) {
    json.Key("metadata").BeginObject();
    for (const auto& [key, value] : report.gguf->metadata()) Write(json.Key(key), value);
    json.EndObject();
  }
  json.Key("types").BeginObject();
  for (const auto& [type, total] : ByType(report)) {
    json.Key(type).BeginObject().Member("tensors", total.tensors).Member("bytes", total.bytes).EndObject();
  }
  json.EndObject();
  if (report.census) {
    const model::Census& c = *report.census;
    json.Member("parameters", c.parameters)
        .Member("total_bytes", c.total_bytes)
        .Member("trunk_bytes", c.trunk_bytes);
    json.Member("mtp_bytes", c.mtp_bytes).Member("trunk_expert_bytes", c.trunk_expert_bytes);
    json.Member("bytes_per_token", c.per_token).Member("fixed_state_bytes", c.fixed_state_bytes);
    json.Member("bytes_per_context_token", c.bytes_per_context_token);
    json.Key("roles").BeginObject();
    const auto roles = ByRole(c);
    for (size_t i = 0; i < roles.size(); ++i) {
      if (roles[i].tensors == 0) continue;
      json.Key(model::Name(static_cast<model::Role>(i))).BeginObject().Member("tensors", roles[i].tensors);
      json.Member("bytes", roles[i].bytes).Member("bytes_per_token", roles[i].per_token).EndObject();
    }
    json.EndObject();
    const auto room = AvailableMemory();
    json.Member("memory_here", room.bytes).Key("fits").BeginArray();
    for (const Fit& fit : Fits(report)) {
      json.BeginObject()
          .Member("context", fit.context)
          .Member("state_bytes", fit.state)
          .Member("bytes", fit.total);
      json.Member("here", fit.total <= room.bytes);
      for (const uint64_t card : kCards)
        json.Member(fmt::format("{} GB", card), fit.total <= card * 1000000000);
      json.EndObject();
    }
    json.EndArray();
  }
  json.Member("shape_order", report.shape_fastest_first ? "fastest first" : "slowest first");
  json.Key("tensors").BeginArray();
  for (const Tensor& t : report.tensors) {
    json.BeginObject().Member("name", t.name).Member("type", t.type).Key("shape").BeginArray(true);
    for (const uint64_t n : t.shape) json.Value(n);
    json.EndArray().Member("bytes", t.bytes).Member("offset", t.offset).Member("file", t.file).EndObject();
  }
  return json.EndArray().EndObject().Take();
}

Result<int> ShowKey(const Report& report, const std::string& key) {
  const gguf::Value* value = report.gguf ? report.gguf->Find(key) : nullptr;
  if (!value) {
    std::vector<std::string> keys;
    if (report.gguf) {
      for (const auto& entry : report.gguf->metadata()) keys.push_back(entry.first);
    }
    const std::string meant = Nearest(key, keys);
    return Status(Code::kNotFound, fmt::format("{}: no key '{}'{}", report.name, key,
                                               meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  std::string text = Whole(*value);
  if (IsTerminal(1)) text = TerminalText(text) + (text.ends_with('\n') ? "" : "\n");
  const Status status = Print(text);
  if (!status.ok()) return status;
  return 0;
}

Result<int> Inspect(const InspectChoice& o) {
  const auto report = Gather(o);
  if (!report.ok()) return report.status();
  if (o.key) return ShowKey(*report, *o.key);
  const Status status = Print(o.json ? Json(*report) : Text(*report, o.tensors));
  if (!status.ok()) return status;
  if (!report->runnable.ok()) return report->runnable;  // shown all the same
  return 0;
}

}  // namespace

Work DeclareInspect(Options& options) {
  auto o = std::make_shared<InspectChoice>();
  options.Positional("FILE", &o->what,
                     "GGUF file (any shard of a set), Hugging Face directory, or one .safetensors file");
  options.files().Reads(&o->what);
  options.Flag("--tensors", &o->tensors, "List every tensor: name, type, shape, bytes, offset");
  options.Value("--key", "NAME", &o->key,
                "Print one metadata value whole, e.g. tokenizer.chat_template; a pipe gets its exact bytes");
  options.Flag("--json", &o->json, "Everything as one JSON object, arrays whole");
  o->model.DeclareSource(options);
  options.Notes(
      "Nothing of a synthetic model is allocated. What glint cannot run, be it damaged or another "
      "architecture, is shown as far as it can be read, with the reason; the exit code is then 1. \"Fits\" "
      "counts weights and state, not the "
      "buffers of a pass.");
  options.Examples({"glint inspect", "glint inspect model.gguf --tensors",
                    "glint inspect --synthetic glm-5.3-flash,recipe=q8_0-q4_k",
                    "glint inspect --key general.architecture"});
  options.Check([o]() -> Status {
    if (o->what && (o->model.path || o->model.synthetic)) {
      return {Code::kBadInput, "give FILE, --model or --synthetic: one of them"};
    }
    if (o->key && (o->json || o->tensors))
      return {Code::kBadInput, "--key goes with neither --json nor --tensors"};
    return {};
  });
  return [o] { return Inspect(*o); };
}

}  // namespace glint::cli
