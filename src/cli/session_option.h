// --session, /save and /load: a session's file, and what commands keep in it beside the sequence.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "glint/session.h"
#include "glint/tokenizer.h"

namespace glint::cli {

// The attachment of a session file, JSON: {"kind": "conversation", "effort", "messages": [{"role", "content", "reasoning"}]} or
// {"kind": "text", "unread": [ids]}.
struct KeptWords {
  bool conversation = false;
  std::vector<Message> messages =
      {};                            // of a conversation; the session's tokens are as much of it as was read
  std::string effort = {};           // of its reasoning, as --think takes it
  std::vector<int32_t> unread = {};  // of a text: ids that belong to it and that the session has not read yet
};
std::string EncodeWords(const KeptWords& words);
Result<KeptWords> DecodeWords(const std::string& json);

// `conversation`: what the caller goes on with; a file of the other kind is refused with the command that takes it. With a progress
// bar. options.context 0: the room it had.
Result<Session> LoadSessionFile(const Model& model, const std::string& path, const SessionOptions& options,
                                bool conversation, KeptWords* words);
// With a progress bar; an interruption that has been asked for does not stop it.
Status SaveSessionFile(const Session& session, const std::string& path, const KeptWords& words);

// Of a text whose beginning the session holds, the tokens that it does not hold.
std::vector<int32_t> Unread(const Session& session, std::span<const int32_t> text);

}  // namespace glint::cli
