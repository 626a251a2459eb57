#include "cli/conversation.h"

#include <algorithm>

namespace glint::cli {
namespace {

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::span<const ChatPart> parts) {
  std::vector<int32_t> ids;
  for (const ChatPart& part : parts) {
    const auto more = tokenizer.Encode(part.text, part.special);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// If `spelled` ends exactly where one of the parts begins and that part opens with a special token, the parts from there on.
// Tokens never span such a place, so what precedes it may be spelled by any tokens.
std::span<const ChatPart> PartsAfter(const Tokenizer& tokenizer, std::span<const ChatPart> parts,
                                     std::string_view spelled) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (spelled.empty()) {
      if (!parts[i].special) return {};
      const auto ids = tokenizer.Encode(parts[i].text, true);
      return !ids.empty() && tokenizer.IsSpecial(ids[0]) ? parts.subspan(i) : std::span<const ChatPart>();
    }
    if (!spelled.starts_with(parts[i].text)) return {};
    spelled.remove_prefix(parts[i].text.size());
  }
  return {};
}

}  // namespace

Message MakeMessage(Role role, std::string content, std::string reasoning) {
  Message message;
  message.role = role;
  message.content = std::move(content);
  message.reasoning = std::move(reasoning);
  return message;
}

ChatOptions WithEffort(const std::string& effort) {
  ChatOptions options;
  options.reasoning_effort = effort;
  return options;
}

size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

Status TakeBack(Session& session, int64_t keep) {
  if (keep == session.position()) return {};
  if (keep > 0) return session.RewindTo(keep);
  session.Reset();
  return {};
}

Result<Continuation> PlanContinuation(const Tokenizer& tokenizer, std::span<const ChatPart> parts,
                                      std::span<const int32_t> session_tokens,
                                      std::span<const int64_t> rewindable) {
  const std::vector<int32_t> wanted = Encode(tokenizer, parts);
  const size_t common = CommonPrefix(session_tokens, wanted);
  if (common == session_tokens.size() && common < wanted.size()) {
    return Continuation{static_cast<int64_t>(common),
                        {wanted.begin() + static_cast<int64_t>(common), wanted.end()}};
  }

  if (common < session_tokens.size()) {
    auto spelled = tokenizer.Decode(session_tokens, true);
    if (!spelled.ok()) return spelled.status();
    const auto rest = PartsAfter(tokenizer, parts, *spelled);
    if (!rest.empty())
      return Continuation{static_cast<int64_t>(session_tokens.size()), Encode(tokenizer, rest)};
  }

  int64_t keep = 0;
  for (const int64_t position : rewindable) {
    if (position > keep && static_cast<size_t>(position) <= common &&
        static_cast<size_t>(position) < wanted.size()) {
      keep = position;
    }
  }
  return Continuation{keep, {wanted.begin() + keep, wanted.end()}};
}

}  // namespace glint::cli
