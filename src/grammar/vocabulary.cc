#include "grammar/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/no_room.h"
#include "grammar/reach.h"

namespace glint::grammar {
namespace {

// Sorted by their bytes, tokens come in the order in which their ends are met depth first: each adds the nodes that it does not share with
// the one before.
Trie MakeTrie(const std::vector<std::string>& tokens, const std::vector<int32_t>& order) {
  Trie trie;
  const auto add = [&](uint8_t byte, size_t depth) {
    trie.push_back({.byte = byte, .depth = static_cast<uint8_t>(depth)});
  };
  add(0, 0);
  std::vector<uint32_t> path = {0};  // nodes from the root to the last one added
  for (const int32_t id : order) {
    const std::string& text = tokens[static_cast<size_t>(id)];
    size_t shared = 0;
    while (shared < text.size() && shared + 1 < path.size() &&
           trie[path[shared + 1]].byte == static_cast<uint8_t>(text[shared])) {
      ++shared;
    }
    for (size_t i = shared + 1; i < path.size(); ++i) trie[path[i]].end = static_cast<uint32_t>(trie.size());
    path.resize(shared + 1);
    for (size_t i = shared; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie.size()));
      add(static_cast<uint8_t>(text[i]), i + 1);
    }
    trie[path.back()].token = id;
  }
  for (const uint32_t node : path) trie[node].end = static_cast<uint32_t>(trie.size());
  return trie;
}

}  // namespace

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Create(const Tokenizer& tokenizer) try {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.size()));
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    auto bytes = tokenizer.Decode(std::span(&id, 1));
    if (!bytes.ok()) return bytes.status();
    if (!tokenizer.IsSpecial(id) && tokenizer.Find(*bytes) != id)
      tokens[static_cast<size_t>(id)] = *std::move(bytes);
  }
  return Create(std::move(tokens), {tokenizer.stop_ids().begin(), tokenizer.stop_ids().end()});
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Create(std::vector<std::string> tokens,
                                                             std::vector<int32_t> stop_ids) try {
  const auto bad = [](std::string message) { return Status(Code::kUnsupported, "vocabulary: " + message); };
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return bad(fmt::format("{} tokens; ids have 31 bits", tokens.size()));
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->common_ = std::make_shared<ReachCache>();
  std::vector<int32_t> order;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const size_t length = tokens[id].size();
    if (length > kLongestToken) tokens[id].clear();
    if (tokens[id].empty()) continue;
    order.push_back(static_cast<int32_t>(id));
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(std::string_view(tokens[static_cast<size_t>(a)]), a) <
           std::pair(std::string_view(tokens[static_cast<size_t>(b)]), b);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (tokens[static_cast<size_t>(order[i - 1])] == tokens[static_cast<size_t>(order[i])])
      return bad(fmt::format("tokens {} and {} have the same bytes", order[i - 1], order[i]));
  }
  std::vector<bool> alone(256);
  for (const int32_t id : order) {
    const std::string& text = tokens[static_cast<size_t>(id)];
    if (text.size() == 1) alone[static_cast<uint8_t>(text[0])] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (!alone[byte]) return bad(fmt::format("no token stands for byte 0x{:02x} alone", byte));
  }
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  for (const int32_t id : stop_ids) {
    if (id < 0 || static_cast<size_t>(id) >= tokens.size())
      return bad(fmt::format("stop id {} is not in [0, {})", id, tokens.size()));
  }
  vocabulary->trie_ = MakeTrie(tokens, order);
  vocabulary->tokens_ = std::move(tokens);
  vocabulary->stop_ids_ = std::move(stop_ids);
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
} catch (...) {
  return NoRoomOrRethrow();
}

bool Vocabulary::IsStop(int32_t id) const {
  return std::binary_search(stop_ids_.begin(), stop_ids_.end(), id);
}

}  // namespace glint::grammar
