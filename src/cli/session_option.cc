#include "cli/session_option.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/json.h"
#include "base/printable.h"
#include "cli/json_writer.h"
#include "cli/progress_bar.h"

namespace glint::cli {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

}  // namespace

std::string EncodeWords(const KeptWords& words) {
  JsonWriter json;
  json.BeginObject().Member("kind", words.conversation ? "conversation" : "text");
  if (words.conversation) {
    json.Member("effort", words.effort).Key("messages").BeginArray();
    for (const Message& message : words.messages) {
      json.BeginObject()
          .Member("role", kRoles[static_cast<size_t>(message.role)])
          .Member("content", message.content);
      if (!message.reasoning.empty()) json.Member("reasoning", message.reasoning);
      json.EndObject();
    }
    json.EndArray();
  } else {
    json.Key("unread").BeginArray(true);
    for (const int32_t id : words.unread) json.Value(id);
    json.EndArray();
  }
  return json.EndObject().Take();
}

Result<KeptWords> DecodeWords(const std::string& text) {
  KeptWords words;
  if (text.empty()) return words;  // saved by a program that keeps nothing there
  const auto json = ParseJson(text, "the session's attachment");
  if (!json.ok()) return json.status();
  const auto kind = json->Get<std::string>("kind");
  if (!kind.ok()) return kind.status();
  if (*kind != "conversation" && *kind != "text") {
    return Status(
        Code::kUnsupported,
        fmt::format("the session's attachment is of kind {}, not a conversation or text", Quoted(*kind)));
  }
  words.conversation = *kind == "conversation";
  if (!words.conversation) {
    const auto unread = json->Get<std::vector<int64_t>>("unread");
    if (!unread.ok()) return unread.status();
    for (const int64_t id : *unread) {
      if (!std::in_range<int32_t>(id))
        return Status(Code::kBadFile, fmt::format("the session's attachment: {} is no id", id));
      words.unread.push_back(static_cast<int32_t>(id));
    }
    return words;
  }
  auto effort = json->Get<std::string>("effort");
  if (!effort.ok()) return effort.status();
  words.effort = std::move(*effort);
  const Json* messages = json->Find("messages");
  if (messages == nullptr || messages->kind() != Json::Kind::kArray)
    return Status(Code::kBadFile, "the session's attachment has no list of messages");
  for (const Json& item : messages->items()) {
    const auto role = item.Get<std::string>("role");
    auto content = item.Get<std::string>("content");
    auto reasoning = item.Get<std::string>("reasoning");
    if (!role.ok()) return role.status();
    if (!content.ok()) return content.status();
    if (!reasoning.ok() && reasoning.status().code() != Code::kNotFound) return reasoning.status();
    const auto* const known = std::find(kRoles.begin(), kRoles.end(), *role);
    if (known == kRoles.end())
      return Status(Code::kBadFile,
                    fmt::format("the session's attachment: there is no role {}", Quoted(*role)));
    Message& message = words.messages.emplace_back();
    message.role = static_cast<Role>(known - kRoles.begin());
    message.content = std::move(*content);
    if (reasoning.ok()) message.reasoning = std::move(*reasoning);
  }
  return words;
}

Result<Session> LoadSessionFile(const Model& model, const std::string& path, const SessionOptions& options,
                                bool conversation, KeptWords* words) {
  ProgressBar bar("loading the session", Unit::kBytes);
  std::string attachment;
  auto session = Session::Load(model, path, options, &attachment, bar.Callback());
  if (!session.ok()) return session;
  auto kept = DecodeWords(attachment);
  if (!kept.ok())
    return Status(kept.status().code(), fmt::format("{}: {}", Printable(path), kept.status().message()));
  for (const int32_t id : kept->unread) {
    if (id >= 0 && id < model.vocab_size()) continue;
    return Status(Code::kBadFile,
                  fmt::format("{}: the session's attachment: id {} is no token; ids go from 0 to {}",
                              Printable(path), id, model.vocab_size() - 1));
  }
  const bool empty = session->position() == 0 && kept->messages.empty() && kept->unread.empty();
  if (!empty && kept->conversation != conversation) {
    return Status(
        Code::kBadInput,
        fmt::format("{}: holds a {}; {} goes on with it", Printable(path),
                    kept->conversation ? "conversation" : "text, not a conversation",
                    kept->conversation ? "glint chat, or glint run --chat," : "glint run without --chat"));
  }
  *words = std::move(*kept);
  words->conversation = conversation;
  return session;
}

Status SaveSessionFile(const Session& session, const std::string& path, const KeptWords& words) {
  ProgressBar bar("saving the session", Unit::kBytes);
  return session.Save(path, EncodeWords(words), [&](uint64_t done, uint64_t total) {
    bar.Update(done, total);
    return true;
  });
}

std::vector<int32_t> Unread(const Session& session, std::span<const int32_t> text) {
  const auto read = std::min(static_cast<size_t>(session.position()), text.size());
  return {text.begin() + static_cast<std::ptrdiff_t>(read), text.end()};
}

}  // namespace glint::cli
