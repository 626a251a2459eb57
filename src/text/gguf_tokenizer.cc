#include "text/gguf_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/printable.h"

namespace glint::text {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
constexpr const char* kPad = "tokenizer.ggml.padding_token_id";
constexpr const char* kIgnoreMerges = "tokenizer.ggml.ignore_merges";
constexpr const char* kTemplate = "tokenizer.chat_template";
// Generation ends on each of them.
constexpr std::array<const char*, 3> kStops = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                               "tokenizer.ggml.eom_token_id"};

struct TypeOfKind {
  TokenKind kind;
  int32_t type;  // its number in the file; 2 (unknown) and 6 (byte) belong to other kinds of tokenizer
};
constexpr std::array<TypeOfKind, 4> kTypeOfKind = {{{TokenKind::kNormal, 1},
                                                    {TokenKind::kControl, 3},
                                                    {TokenKind::kUserDefined, 4},
                                                    {TokenKind::kUnused, 5}}};

std::string Place(const gguf::File& file, std::string_view key) {
  return fmt::format("{}: {}", file.paths().empty() ? "" : file.paths()[0], key);
}

// A key that a file with a tokenizer must have: without it the file is damaged, which is not the same as having none.
template <class T>
Result<T> Required(const gguf::File& file, const char* key, Result<T> read) {
  if (!read.ok() && read.status().code() == Code::kNotFound)
    return Status(Code::kBadFile, Place(file, key) + ": absent, but the file has a tokenizer");
  return read;
}

// An id in [0, tokens), or -1 if the key is absent.
Result<int32_t> ReadId(const gguf::File& file, const char* key, size_t tokens) {
  const auto id = file.GetUint(key);
  if (!id.ok() && id.status().code() == Code::kNotFound) return int32_t{-1};
  if (!id.ok()) return id.status();
  if (*id >= tokens)
    return Status(Code::kBadFile, fmt::format("{}: {} is not in [0, {})", Place(file, key), *id, tokens));
  return static_cast<int32_t>(*id);
}

Status CheckKind(const gguf::File& file) {
  const auto model = Required(file, kModel, file.GetString(kModel));
  if (!model.ok()) return model.status();
  if (*model != "gpt2") {
    return {Code::kUnsupported, fmt::format("{}: {}; glint has the byte-level tokenizer alone, 'gpt2'",
                                            Place(file, kModel), Quoted(*model))};
  }
  const auto pre = file.GetString(kPre);
  if (!pre.ok() && pre.status().code() != Code::kNotFound) return pre.status();
  if (!pre.ok() || (*pre != "glm4" && *pre != "glm5")) {
    return {Code::kUnsupported, fmt::format("{}: {}; glint has GLM's pre-tokenizer alone, 'glm4' or 'glm5'",
                                            Place(file, kPre), pre.ok() ? Quoted(*pre) : "absent")};
  }
  return {};
}

Status ReadKinds(const gguf::File& file, TokenizerData& data) {
  const auto types = Required(file, kTypes, file.GetUints(kTypes));
  if (!types.ok()) return types.status();
  if (types->size() != data.tokens.size()) {
    return {Code::kBadFile, fmt::format("{}: {} types for {} tokens", Place(file, kTypes), types->size(),
                                        data.tokens.size())};
  }
  for (size_t id = 0; id < types->size(); ++id) {
    const auto* known = std::find_if(kTypeOfKind.begin(), kTypeOfKind.end(), [&](const TypeOfKind& t) {
      return static_cast<uint64_t>(t.type) == (*types)[id];
    });
    if (known == kTypeOfKind.end()) {
      return {Code::kBadFile,
              fmt::format(
                  "{}: token {} is of type {}; a byte-level tokenizer has 1 (normal), 3 (control), 4 (user "
                  "defined) and 5 (unused)",
                  Place(file, kTypes), id, (*types)[id])};
    }
    data.kinds.push_back(known->kind);
  }
  return {};
}

Status ReadMerges(const gguf::File& file, TokenizerData& data) {
  const auto merges = Required(file, kMerges, file.GetStrings(kMerges));
  if (!merges.ok()) return merges.status();
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string& merge = (*merges)[i];
    const size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size()) {
      return {Code::kBadFile, fmt::format("{}: entry {}, {}, is not two tokens with a space between",
                                          Place(file, kMerges), i, Quoted(merge))};
    }
    data.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

}  // namespace

Result<TokenizerData> ReadGgufTokenizer(const gguf::File& file) {
  if (file.Find(kModel) == nullptr && file.Find(kTokens) == nullptr) {
    return Status(Code::kNotFound, Place(file, kModel) + ": absent, so the file has no tokenizer");
  }
  if (Status s = CheckKind(file); !s.ok()) return s;
  TokenizerData data;
  auto tokens = Required(file, kTokens, file.GetStrings(kTokens));
  if (!tokens.ok()) return tokens.status();
  data.tokens = std::move(*tokens);
  if (Status s = ReadKinds(file, data); !s.ok()) return s;
  if (Status s = ReadMerges(file, data); !s.ok()) return s;
  data.ignore_merges = true;
  if (file.Find(kIgnoreMerges) != nullptr) {
    const auto ignore = file.GetBool(kIgnoreMerges);
    if (!ignore.ok()) return ignore.status();
    data.ignore_merges = *ignore;
  }
  for (const char* key : kStops) {
    const auto id = ReadId(file, key, data.tokens.size());
    if (!id.ok()) return id.status();
    if (*id >= 0 && std::find(data.stop_ids.begin(), data.stop_ids.end(), *id) == data.stop_ids.end()) {
      data.stop_ids.push_back(*id);
    }
  }
  for (const auto& [key, id] : {std::pair{kPad, &data.pad_id}, std::pair{kBos, &data.bos_id}}) {
    const auto read = ReadId(file, key, data.tokens.size());
    if (!read.ok()) return read.status();
    *id = *read;
  }
  return data;
}

Result<std::string> ReadGgufChatTemplate(const gguf::File& file) {
  auto source = file.GetString(kTemplate);
  if (!source.ok() && source.status().code() == Code::kNotFound) return std::string();
  return source;
}

Status WriteGgufTokenizer(const TokenizerData& data, const std::string& chat_template, gguf::Writer& writer) {
  if (data.stop_ids.size() > kStops.size()) {
    return {Code::kUnsupported,
            fmt::format("the tokenizer has {} stop ids; GGUF has keys for {}: eos, eot and eom",
                        data.stop_ids.size(), kStops.size())};
  }
  writer.SetString(kModel, "gpt2");
  writer.SetString(kPre, "glm4");
  writer.SetStrings(kTokens, data.tokens);
  std::vector<int32_t> types;
  for (const TokenKind kind : data.kinds) {
    const auto* known = std::find_if(kTypeOfKind.begin(), kTypeOfKind.end(),
                                     [&](const TypeOfKind& t) { return t.kind == kind; });
    if (known == kTypeOfKind.end()) return {Code::kInternal, "a token of unknown kind"};
    types.push_back(known->type);
  }
  writer.SetI32s(kTypes, std::move(types));
  std::vector<std::string> merges;
  for (const auto& [left, right] : data.merges) merges.push_back(left + " " + right);
  writer.SetStrings(kMerges, std::move(merges));
  for (size_t i = 0; i < data.stop_ids.size(); ++i)
    writer.SetU32(kStops[i], static_cast<uint32_t>(data.stop_ids[i]));
  if (data.pad_id >= 0) writer.SetU32(kPad, static_cast<uint32_t>(data.pad_id));
  if (data.bos_id >= 0) writer.SetU32(kBos, static_cast<uint32_t>(data.bos_id));
  writer.SetBool(kIgnoreMerges, data.ignore_merges);
  if (!chat_template.empty()) writer.SetString(kTemplate, chat_template);
  return {};
}

}  // namespace glint::text
