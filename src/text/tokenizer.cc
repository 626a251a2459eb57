#include "text/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <unordered_map>

#include "base/printable.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"

namespace glint::text {
namespace {

Status Bad(std::string message) { return {Code::kBadFile, "tokenizer: " + std::move(message)}; }

}  // namespace

struct Tokenizer::Tables {
  explicit Tables(size_t merges) : merge(merges) { byte_ids.fill(-1); }

  std::string bytes;            // of all ids, one after another
  std::vector<size_t> offsets;  // [ids + 1] into `bytes`
  int32_t usable = 0;
  std::unordered_map<std::string_view, int32_t> normal;  // by bytes; views into `bytes`
  std::unordered_map<std::string_view, int32_t> added;   // control and user-defined, by spelling
  // For the first byte of a text: the lengths of the added tokens that begin with it, longest first.
  std::array<std::vector<size_t>, 256> added_lengths;
  std::array<int32_t, 256> byte_ids;
  MergeTable merge;

  std::string_view Bytes(int32_t id) const {
    return std::string_view(bytes).substr(offsets[id], offsets[id + 1] - offsets[id]);
  }

  Status FillTokens(const TokenizerData& data);
  Status FillMerges(const TokenizerData& data);

  // The added token that `text` begins with, the longest; -1 if there is none.
  int32_t AddedAt(std::string_view text, size_t& length) const {
    for (const size_t n : added_lengths[static_cast<uint8_t>(text[0])]) {
      if (n > text.size()) continue;
      const auto found = added.find(text.substr(0, n));
      if (found == added.end()) continue;
      length = n;
      return found->second;
    }
    return -1;
  }
};

Status Tokenizer::Tables::FillTokens(const TokenizerData& data) {
  const auto n = static_cast<int32_t>(data.tokens.size());
  offsets.push_back(0);
  for (int32_t id = 0; id < n; ++id) {
    const std::string& token = data.tokens[id];
    switch (data.kinds[id]) {
      case TokenKind::kNormal: {
        const auto spelled = FromAlphabet(token);
        if (!spelled || spelled->empty()) {
          return Bad(fmt::format("token {}, {}, is {}; a normal token is spelled in the byte-level alphabet",
                                 id, Quoted(token),
                                 token.empty() ? "empty" : "not of the byte-level alphabet"));
        }
        bytes += *spelled;
        break;
      }
      case TokenKind::kControl:
      case TokenKind::kUserDefined:
        if (token.empty())
          return Bad(fmt::format("token {}, a control or user-defined one, has no spelling", id));
        bytes += token;
        break;
      case TokenKind::kUnused:
        break;
      default:
        return Bad(fmt::format("token {}: kind {} is unknown", id, static_cast<int>(data.kinds[id])));
    }
    offsets.push_back(bytes.size());
    if (data.kinds[id] != TokenKind::kUnused) usable = id + 1;
  }
  // Views are taken when `bytes` has stopped moving.
  for (int32_t id = 0; id < n; ++id) {
    const TokenKind kind = data.kinds[id];
    if (kind == TokenKind::kUnused) continue;
    auto& table = kind == TokenKind::kNormal ? normal : added;
    const auto [at, is_new] = table.emplace(Bytes(id), id);
    if (!is_new) {
      return Bad(
          fmt::format("tokens {} and {} are both spelled {}", at->second, id, Quoted(data.tokens[id])));
    }
    if (kind == TokenKind::kNormal && Bytes(id).size() == 1)
      byte_ids[static_cast<uint8_t>(Bytes(id)[0])] = id;
    if (kind != TokenKind::kNormal) {
      auto& lengths = added_lengths[static_cast<uint8_t>(Bytes(id)[0])];
      if (std::find(lengths.begin(), lengths.end(), Bytes(id).size()) == lengths.end())
        lengths.push_back(Bytes(id).size());
    }
  }
  for (auto& lengths : added_lengths) std::sort(lengths.begin(), lengths.end(), std::greater<>());
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids[byte] >= 0) continue;
    return Bad(fmt::format("no token stands for byte 0x{:02x} alone; each of the 256 needs one", byte));
  }
  return {};
}

Status Tokenizer::Tables::FillMerges(const TokenizerData& data) {
  // A merge that takes or makes an added token is left out, so that plain text can't make one however the
  // vocabulary is built.
  enum class Found { kNothing, kNormal, kAdded };
  const auto find = [&](std::string_view spelling, int32_t& id) {
    const auto token = FromAlphabet(spelling);
    if (!token) return Found::kNothing;
    if (const auto at = normal.find(*token); at != normal.end()) {
      id = at->second;
      return Found::kNormal;
    }
    return added.contains(*token) ? Found::kAdded : Found::kNothing;
  };
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const auto& [left, right] = data.merges[rank];
    const std::string joined = left + right;
    const std::array<const std::string*, 3> names = {&left, &right, &joined};
    std::array<int32_t, 3> ids = {};
    bool all_normal = true;
    for (size_t i = 0; i < names.size(); ++i) {
      const Found found = find(*names[i], ids[i]);
      if (found == Found::kNothing) {
        return Bad(fmt::format("merge {}, {} + {}: there is no token {}", rank, Quoted(left), Quoted(right),
                               Quoted(*names[i])));
      }
      all_normal = all_normal && found == Found::kNormal;
    }
    if (all_normal) merge.Add(ids[0], ids[1], {static_cast<uint32_t>(rank), ids[2]});
  }
  return {};
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerData data) {
  const size_t n = data.tokens.size();
  if (n == 0) return Bad("there are no tokens");
  if (n > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return Bad(fmt::format("{} tokens; ids have 31 bits", n));
  if (data.kinds.size() != n) return Bad(fmt::format("{} tokens but {} token types", n, data.kinds.size()));
  if (data.merges.size() >= MergeTable::kNoRank)
    return Bad(fmt::format("{} merges; ranks have 32 bits", data.merges.size()));
  const auto in_range = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < n; };
  for (const int32_t id : data.stop_ids) {
    if (!in_range(id)) return Bad(fmt::format("stop id {} is not in [0, {})", id, n));
  }
  if (data.pad_id != -1 && !in_range(data.pad_id))
    return Bad(fmt::format("padding id {} is not in [0, {})", data.pad_id, n));
  if (data.bos_id != -1 && !in_range(data.bos_id))
    return Bad(fmt::format("bos id {} is not in [0, {})", data.bos_id, n));

  auto tables = std::make_shared<Tables>(data.merges.size());
  if (Status status = tables->FillTokens(data); !status.ok()) return status;
  if (Status status = tables->FillMerges(data); !status.ok()) return status;
  auto tokenizer = std::make_shared<Tokenizer>();
  tokenizer->data_ = std::move(data);
  tokenizer->tables_ = std::move(tables);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  const ChatPart part{std::string(text), parse_special};
  return Encode(std::span(&part, 1));
}

std::vector<int32_t> Tokenizer::Encode(std::span<const ChatPart> parts) const {
  const Tables& t = *tables_;
  std::vector<int32_t> ids;
  Bpe bpe(t.merge, t.byte_ids);
  std::string run;  // text since the last added token, from all parts
  const auto flush = [&] {
    for (std::string_view rest = run; !rest.empty();) {
      std::string_view piece = rest.substr(0, PieceLength(rest));
      rest.remove_prefix(piece.size());
      if (data_.ignore_merges) {
        if (const auto whole = t.normal.find(piece); whole != t.normal.end()) {
          ids.push_back(whole->second);
          continue;
        }
      }
      // Only pieces of more than a gigabyte are cut here; their ids may differ from those of the uncut piece.
      for (; piece.size() > Bpe::kLongest; piece.remove_prefix(Bpe::kLongest))
        bpe.Encode(piece.substr(0, Bpe::kLongest), ids);
      bpe.Encode(piece, ids);
    }
    run.clear();
  };
  for (const ChatPart& part : parts) {
    if (!part.special) {
      run += part.text;
      continue;
    }
    const std::string_view text = part.text;
    size_t start = 0;  // of the text not yet in `run`
    for (size_t at = 0; at < text.size();) {
      size_t length = 0;
      const int32_t id = t.AddedAt(text.substr(at), length);
      if (id < 0) {
        ++at;
        continue;
      }
      run += text.substr(start, at - start);
      flush();
      ids.push_back(id);
      start = at += length;
    }
    run += text.substr(start);
  }
  flush();
  return ids;
}

std::string_view Tokenizer::Bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return tables_->Bytes(id);
}

TokenKind Tokenizer::Kind(int32_t id) const {
  if (id < 0 || id >= size()) return TokenKind::kUnused;
  return data_.kinds[id];
}

int32_t Tokenizer::FindAdded(std::string_view spelling) const {
  const auto found = tables_->added.find(spelling);
  return found == tables_->added.end() ? -1 : found->second;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(data_.tokens.size()); }
int32_t Tokenizer::usable() const { return tables_->usable; }

}  // namespace glint::text
