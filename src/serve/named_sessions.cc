#include "serve/named_sessions.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/printable.h"
#include "engine/session_file.h"

namespace glint::serve {
namespace {

constexpr std::string_view kSuffix = ".session";

Result<engine::SessionHeader> HeaderOf(const MappedFile& file) {
  return engine::ParseSessionHeader(file.bytes());
}

}  // namespace

bool ValidSessionName(std::string_view name) {
  const auto fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), fine);
}

Result<std::string> NamedSessions::PathOf(std::string_view name) const {
  if (!ValidSessionName(name)) {
    return Status(Code::kBadInput,
                  fmt::format("{} is no name for a session: letters, digits, '_', '-' and '.' are, up to 64 "
                              "of them, not beginning with '.'",
                              Quoted(name)));
  }
  return fmt::format("{}/{}{}", directory_, name, kSuffix);
}

Result<NamedSessions> NamedSessions::Open(std::string directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(directory, "can't be made");
  struct stat kind {};
  if (stat(directory.c_str(), &kind) != 0) return SystemError(directory, "can't be read");
  if (!S_ISDIR(kind.st_mode)) return Status(Code::kIo, directory + ": is no directory");
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0) return SystemError(directory, "can't be written");
  return NamedSessions(std::move(directory));
}

Result<std::vector<NamedSession>> NamedSessions::List() const {
  std::vector<NamedSession> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    name.resize(name.size() - kSuffix.size());
    if (auto found = Find(name); found.ok()) all.push_back(*std::move(found));
  }
  if (error) return Status(Code::kIo, fmt::format("{}: can't be listed: {}", directory_, error.message()));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

Result<NamedSession> NamedSessions::Find(std::string_view name) const {
  const auto path = PathOf(name);
  if (!path.ok()) return path.status();
  struct stat kind {};
  if (stat(path->c_str(), &kind) != 0)
    return Status(Code::kNotFound, fmt::format("there is no session '{}'", name));
  const auto file = MappedFile::Open(*path);
  if (!file.ok()) return file.status();
  const auto header = HeaderOf(*file);
  if (!header.ok())
    return Status(header.status().code(), fmt::format("session '{}': {}", name, header.status().message()));
  return NamedSession{std::string(name), static_cast<uint64_t>(header->position),
                      static_cast<uint64_t>(kind.st_size), kind.st_mtim.tv_sec};
}

Status NamedSessions::Save(const Session& session, std::string_view name) const {
  const auto path = PathOf(name);
  if (!path.ok()) return path.status();
  // So that `glint run --session` goes on with it, too.
  return session.Save(*path, R"({"kind": "text", "unread": []})");
}

Result<Session> NamedSessions::Load(const Model& model, std::string_view name, int64_t context) const {
  if (auto found = Find(name); !found.ok()) return found.status();
  return Session::Load(model, *PathOf(name), {.context = context});
}

Result<std::vector<int32_t>> NamedSessions::Tokens(std::string_view name) const {
  if (auto found = Find(name); !found.ok()) return found.status();
  const auto file = MappedFile::Open(*PathOf(name));
  if (!file.ok()) return file.status();
  const auto header = HeaderOf(*file);
  if (!header.ok()) return header.status();
  std::vector<int32_t> ids(static_cast<size_t>(header->position));
  for (const engine::SessionSection& section : header->sections) {
    if (section.kind != engine::SessionSection::Kind::kTokens) continue;
    const std::span<std::byte> out = std::as_writable_bytes(std::span(ids));
    if (section.RawBytes() != out.size())
      return Status(Code::kBadFile, fmt::format("session '{}' is damaged", name));
    if (Status s = engine::ReadSection(file->bytes(), section, out); !s.ok()) return s;
  }
  return ids;
}

Status NamedSessions::Remove(std::string_view name) const {
  if (auto found = Find(name); !found.ok()) return found.status();
  const std::string path = *PathOf(name);
  return unlink(path.c_str()) == 0 ? Status() : SystemError(path, "can't be deleted");
}

}  // namespace glint::serve
