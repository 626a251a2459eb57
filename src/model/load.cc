#include "model/load.h"

#include <fmt/core.h>

#include <cmath>
#include <filesystem>

namespace glint::model {

std::string NameFromPath(const std::string& path) {
  std::filesystem::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // "dir/"
  std::string name = p.filename().string();
  constexpr std::string_view kExtension = ".gguf";
  if (name.size() > kExtension.size() && name.ends_with(kExtension))
    name.resize(name.size() - kExtension.size());
  // -00001-of-00006
  constexpr size_t kShard = 15;
  if (name.size() > kShard) {
    const std::string_view tail = std::string_view(name).substr(name.size() - kShard);
    const auto digits = [](std::string_view s) {
      return s.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (tail[0] == '-' && digits(tail.substr(1, 5)) && tail.substr(6, 4) == "-of-" &&
        digits(tail.substr(10))) {
      name.resize(name.size() - kShard);
    }
  }
  return name;
}

SamplingHints Usable(SamplingHints hints, std::vector<std::string>& notes) {
  const auto check = [&notes](auto& hint, std::string_view name, bool usable, std::string_view wanted) {
    if (!hint || usable) return;
    notes.push_back(fmt::format("the suggested {} is {}, wanted {}; it is ignored", name, *hint, wanted));
    hint.reset();
  };
  const float t = hints.temperature.value_or(0), p = hints.top_p.value_or(1);
  check(hints.temperature, "temperature", std::isfinite(t) && t >= 0, "a finite number from 0 up");
  check(hints.top_p, "top_p", p > 0 && p <= 1, "a number above 0 and at most 1");
  check(hints.top_k, "top_k", hints.top_k.value_or(0) >= 0, "0 or more");
  return hints;
}

namespace {

// Who shows a note says of which file.
std::string WithoutPath(const std::string& message, const std::string& path) {
  return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
}

}  // namespace

Status SetTokenizer(Result<text::TokenizerData> read, const std::string& path, ModelData& model) {
  if (!read.ok()) {
    switch (read.status().code()) {
      case Code::kNotFound:
        return {};
      case Code::kUnsupported:
        model.notes.push_back(WithoutPath(read.status().message(), path) + "; only token ids can be used");
        return {};
      default:
        return read.status();
    }
  }
  const int64_t rows = model.hparams.vocab_size;
  if (std::ssize(read->tokens) > rows) {
    return {Code::kBadFile, fmt::format("{}: the tokenizer has {} tokens, but the embedding only {} rows",
                                        path, read->tokens.size(), rows)};
  }
  for (int64_t id = std::ssize(read->tokens); id < rows; ++id) {
    read->tokens.push_back(fmt::format("[PAD{}]", id));
    read->kinds.push_back(text::TokenKind::kUnused);
  }
  model.tokenizer = std::move(*read);
  return {};
}

Result<ModelData> Load(const std::string& path, const LoadOptions& options) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return LoadHf(path, options);
  return LoadGguf(path, options);
}

}  // namespace glint::model
