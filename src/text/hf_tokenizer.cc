#include "text/hf_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"

namespace glint::text {
namespace {

// The pattern that text/pretokenizer.cc implements, as GLM's files spell it.
constexpr std::string_view kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int64_t kMaxTokens = int64_t{1} << 22;  // an id beyond is a mistake, not a reason to take memory

Status Unsupported(const JsonFile& file, const std::string& what) {
  return {Code::kUnsupported, file.name() + ": " + what};
}
Status Bad(const JsonFile& file, const std::string& what) {
  return {Code::kBadFile, file.name() + ": " + what};
}

bool IsNull(const Json* value) { return value == nullptr || value->kind() == Json::Kind::kNull; }
const std::string* AsString(const Json* value) {
  return value == nullptr ? nullptr : std::get_if<std::string>(&value->data());
}
bool IsTrue(const Json* value) {
  const bool* flag = value == nullptr ? nullptr : std::get_if<bool>(&value->data());
  return flag != nullptr && *flag;
}
bool Is(const Json* value, std::string_view text) {
  const std::string* string = AsString(value);
  return string != nullptr && *string == text;
}

Status CheckPreTokenizer(const JsonFile& file) {
  const Json* pre = file.root().Find("pre_tokenizer");
  const Json* steps =
      pre == nullptr || !Is(pre->Find("type"), "Sequence") ? nullptr : pre->Find("pretokenizers");
  if (steps == nullptr || steps->items().size() != 2) {
    return Unsupported(file, "pre_tokenizer is not GLM's sequence of a Split and a ByteLevel");
  }
  const Json &split = steps->items()[0], &bytes = steps->items()[1];
  if (!Is(split.Find("type"), "Split") || !Is(split.Find("behavior"), "Isolated") ||
      IsTrue(split.Find("invert"))) {
    return Unsupported(file, "the first step of pre_tokenizer is not a Split that isolates its matches");
  }
  const std::string* pattern = AsString(split.At("pattern.Regex"));
  if (pattern == nullptr || *pattern != kPattern) {
    return Unsupported(file, fmt::format("the pattern of pre_tokenizer is {}; glint knows GLM's alone, {}",
                                         pattern == nullptr ? "absent" : Quoted(*pattern, 200), kPattern));
  }
  if (!Is(bytes.Find("type"), "ByteLevel") || IsTrue(bytes.Find("add_prefix_space")) ||
      IsTrue(bytes.Find("use_regex"))) {
    return Unsupported(
        file, "the second step of pre_tokenizer is not a ByteLevel without pattern and prefix space");
  }
  return {};
}

Status CheckKind(const JsonFile& file) {
  const Json* model = file.root().Find("model");
  if (model == nullptr) return Bad(file, "there is no \"model\"");
  if (const Json* type = model->Find("type"); type != nullptr && !Is(type, "BPE")) {
    return Unsupported(file, "model.type is not BPE");
  }
  if (IsTrue(model->Find("byte_fallback"))) return Unsupported(file, "model.byte_fallback is true");
  if (!IsNull(model->Find("dropout"))) return Unsupported(file, "model.dropout is set");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const Json* affix = model->Find(key); !IsNull(affix) && !Is(affix, "")) {
      return Unsupported(file, fmt::format("model.{} is set", key));
    }
  }
  if (!IsNull(file.root().Find("normalizer"))) return Unsupported(file, "there is a normalizer");
  return CheckPreTokenizer(file);
}

Status ReadMerges(const JsonFile& file, TokenizerData& data) {
  const Json* merges = file.root().At("model.merges");
  if (merges == nullptr || merges->kind() != Json::Kind::kArray)
    return Bad(file, "model.merges is not an array");
  data.merges.reserve(merges->items().size());
  for (size_t i = 0; i < merges->items().size(); ++i) {
    const Json& merge = merges->items()[i];
    if (const std::string* text = AsString(&merge)) {  // before tokenizers 0.20
      const size_t space = text->find(' ');
      if (space != std::string::npos && space > 0 && space + 1 < text->size()) {
        data.merges.emplace_back(text->substr(0, space), text->substr(space + 1));
        continue;
      }
    } else if (merge.items().size() == 2) {
      const std::string *left = AsString(&merge.items()[0]), *right = AsString(&merge.items()[1]);
      if (left != nullptr && right != nullptr) {
        data.merges.emplace_back(*left, *right);
        continue;
      }
    }
    return Bad(file, fmt::format("model.merges[{}] is neither [\"a\", \"b\"] nor \"a b\"", i));
  }
  return {};
}

class TokenTable {
 public:
  TokenTable(const JsonFile& file, TokenizerData& data) : file_(file), data_(data) {}

  // `what` names the place for messages.
  Status Put(const std::string& what, const Json* id, const std::string& spelling, TokenKind kind) {
    const int64_t* number = id == nullptr ? nullptr : std::get_if<int64_t>(&id->data());
    if (number == nullptr || *number < 0 || *number >= kMaxTokens) {
      return Bad(file_, fmt::format("{} {}: the id is not an integer in [0, {})", what, Quoted(spelling),
                                    kMaxTokens));
    }
    const auto at = static_cast<size_t>(*number);
    if (at >= data_.tokens.size()) {
      data_.tokens.resize(at + 1);
      data_.kinds.resize(at + 1, TokenKind::kUnused);
    }
    // An added token may stand in the vocabulary too; anything else under its id is a contradiction.
    if (data_.kinds[at] != TokenKind::kUnused && data_.tokens[at] != spelling) {
      return Bad(file_, fmt::format("{} {}: id {} is {} already", what, Quoted(spelling), at,
                                    Quoted(data_.tokens[at])));
    }
    data_.tokens[at] = spelling;
    data_.kinds[at] = kind;
    return {};
  }

 private:
  const JsonFile& file_;
  TokenizerData& data_;
};

Status ReadTokens(const JsonFile& file, int64_t vocab, TokenizerData& data) {
  TokenTable table(file, data);
  const Json* entries = file.root().At("model.vocab");
  if (entries == nullptr || entries->kind() != Json::Kind::kObject)
    return Bad(file, "model.vocab is not an object");
  for (const Json::Member& entry : entries->members()) {
    if (Status s = table.Put("model.vocab", &entry.value, entry.key, TokenKind::kNormal); !s.ok()) return s;
  }
  const Json* added = file.root().Find("added_tokens");
  if (!IsNull(added) && added->kind() != Json::Kind::kArray) return Bad(file, "added_tokens is not an array");
  if (!IsNull(added)) {
    for (const Json& token : added->items()) {
      const std::string* content = AsString(token.Find("content"));
      if (content == nullptr) return Bad(file, "an entry of added_tokens has no content");
      for (const std::string_view rule : {"single_word", "lstrip", "rstrip"}) {
        if (!IsTrue(token.Find(rule))) continue;
        return Unsupported(file, fmt::format("added_tokens: {} has {} set", Quoted(*content), rule));
      }
      const TokenKind kind = IsTrue(token.Find("special")) ? TokenKind::kControl : TokenKind::kUserDefined;
      if (Status s = table.Put("added_tokens", token.Find("id"), *content, kind); !s.ok()) return s;
    }
  }
  if (vocab > 0 && std::ssize(data.tokens) > vocab) {
    return Bad(file, fmt::format("there is a token of id {}, but the model's vocabulary has {} rows",
                                 data.tokens.size() - 1, vocab));
  }
  if (vocab > std::ssize(data.tokens)) {
    data.tokens.resize(static_cast<size_t>(vocab));
    data.kinds.resize(static_cast<size_t>(vocab), TokenKind::kUnused);
  }
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.kinds[id] == TokenKind::kUnused) data.tokens[id] = fmt::format("[PAD{}]", id);
  }
  return {};
}

// A file of the directory; empty if it is not there.
Result<std::optional<JsonFile>> ReadOptional(const std::string& directory, std::string_view name) {
  auto file = ReadJson((std::filesystem::path(directory) / name).string());
  if (file.ok()) return std::optional<JsonFile>(std::move(*file));
  if (file.status().code() == Code::kNotFound) return std::optional<JsonFile>();
  return file.status();
}

// Appends the id, or the ids of a list, at `path`.
Status AppendIds(const JsonFile& file, std::string_view path, size_t tokens, std::vector<int32_t>& ids) {
  const Json* value = file.root().At(path);
  if (IsNull(value)) return {};
  const bool list = value->kind() == Json::Kind::kArray;
  for (size_t i = 0; i < (list ? value->items().size() : 1); ++i) {
    const int64_t* id = std::get_if<int64_t>(&(list ? value->items()[i] : *value).data());
    if (id == nullptr || *id < 0 || static_cast<uint64_t>(*id) >= tokens) {
      return Bad(file, fmt::format("{}: not an id in [0, {})", path, tokens));
    }
    const auto small = static_cast<int32_t>(*id);
    if (std::find(ids.begin(), ids.end(), small) == ids.end()) ids.push_back(small);
  }
  return {};
}

// The id of a token that tokenizer_config.json gives by its spelling, as a text or as an object with "content"; -1 if it is
// not given.
int32_t FindSpelled(const JsonFile& file, std::string_view key, const TokenizerData& data) {
  const Json* value = file.root().Find(key);
  const std::string* spelling = AsString(value);
  if (spelling == nullptr && value != nullptr) spelling = AsString(value->Find("content"));
  if (spelling == nullptr) return -1;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.kinds[id] != TokenKind::kUnused && data.tokens[id] == *spelling) return static_cast<int32_t>(id);
  }
  return -1;
}

Status ReadIds(const std::string& directory, TokenizerData& data) {
  const size_t n = data.tokens.size();
  std::vector<int32_t> pad, bos;
  const struct {
    std::string_view file, prefix;
  } sources[] = {{"generation_config.json", ""}, {"config.json", ""}, {"config.json", "text_config."}};
  for (const auto& source : sources) {
    auto file = ReadOptional(directory, source.file);
    if (!file.ok()) return file.status();
    if (!file->has_value()) continue;
    const struct {
      std::string_view key;
      std::vector<int32_t>& ids;
    } wanted[] = {{"eos_token_id", data.stop_ids}, {"pad_token_id", pad}, {"bos_token_id", bos}};
    for (const auto& want : wanted) {
      if (!want.ids.empty()) continue;
      if (Status s = AppendIds(**file, std::string(source.prefix) + std::string(want.key), n, want.ids);
          !s.ok())
        return s;
    }
  }
  if (!pad.empty()) data.pad_id = pad[0];
  if (!bos.empty()) data.bos_id = bos[0];

  auto config = ReadOptional(directory, "tokenizer_config.json");
  if (!config.ok()) return config.status();
  if (!config->has_value()) return {};
  if (data.stop_ids.empty()) {
    if (const int32_t eos = FindSpelled(**config, "eos_token", data); eos >= 0) data.stop_ids.push_back(eos);
  }
  if (data.pad_id < 0) data.pad_id = FindSpelled(**config, "pad_token", data);
  if (data.bos_id < 0) data.bos_id = FindSpelled(**config, "bos_token", data);
  return {};
}

}  // namespace

Result<TokenizerData> ReadHfTokenizer(const std::string& directory, int64_t vocab) {
  if (vocab > kMaxTokens) {
    return Status(Code::kUnsupported, fmt::format("{}: a vocabulary of {} rows; at most {} are supported",
                                                  directory, vocab, kMaxTokens));
  }
  auto file = ReadJson((std::filesystem::path(directory) / "tokenizer.json").string());
  if (!file.ok()) return file.status();
  TokenizerData data;
  if (Status s = CheckKind(*file); !s.ok()) return s;
  if (Status s = ReadTokens(*file, vocab, data); !s.ok()) return s;
  if (Status s = ReadMerges(*file, data); !s.ok()) return s;
  data.ignore_merges = IsTrue(file->root().At("model.ignore_merges"));
  if (Status s = ReadIds(directory, data); !s.ok()) return s;
  return data;
}

Result<std::string> ReadHfChatTemplate(const std::string& directory) {
  auto source = ReadFile((std::filesystem::path(directory) / "chat_template.jinja").string());
  if (source.ok() || source.status().code() != Code::kNotFound) return source;
  auto config = ReadOptional(directory, "tokenizer_config.json");
  if (!config.ok()) return config.status();
  if (!config->has_value()) return std::string();
  const Json* value = (*config)->root().Find("chat_template");
  if (const std::string* text = AsString(value)) return *text;
  if (value == nullptr) return std::string();
  for (const Json& named : value->items()) {
    const std::string* text = AsString(named.Find("template"));
    if (Is(named.Find("name"), "default") && text != nullptr) return *text;
  }
  return std::string();
}

}  // namespace glint::text
