#include "serve/sampled_turns.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/no_room.h"
#include "glint/answer.h"

namespace glint::serve {
namespace {

using Ids = std::vector<int32_t>;

struct KeyHash {
  size_t operator()(const Hash128& key) const { return static_cast<size_t>(key.low); }
};

struct Turn {
  Hash128 key;
  uint64_t reasoning = 0;  // hash; of no reasoning that of ""
  Ids ids;
  uint64_t bytes() const { return 128 + ids.size() * sizeof(int32_t); }
};

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

uint64_t HashOf(std::string_view text) { return Hash64(std::as_bytes(std::span(Trimmed(text)))); }

// A value's content, whatever the order of its keys and the white space in its text.
void Add(const Json& value, Hasher& hash) {
  hash.AddNumber(static_cast<uint64_t>(value.kind()));
  switch (value.kind()) {
    case Json::Kind::kArray:
      hash.AddNumber(value.items().size());
      for (const Json& item : value.items()) Add(item, hash);
      return;
    case Json::Kind::kObject: {
      std::vector<const Json::Member*> members;
      for (const auto& member : value.members()) members.push_back(&member);
      std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->key < b->key; });
      hash.AddNumber(members.size());
      for (const auto* member : members) {
        hash.AddText(member->key);
        Add(member->value, hash);
      }
      return;
    }
    default:
      break;
  }
  const Json::Data& data = value.data();
  if (const auto* text = std::get_if<std::string>(&data)) {
    hash.AddText(*text);
  } else if (const auto* yes = std::get_if<bool>(&data)) {
    hash.AddNumber(*yes ? 1 : 0);
  } else if (const auto* number = std::get_if<int64_t>(&data)) {
    hash.AddNumber(static_cast<uint64_t>(*number));
  } else if (const auto* large = std::get_if<uint64_t>(&data)) {
    hash.AddNumber(*large);
  } else if (const auto* real = std::get_if<double>(&data)) {
    uint64_t bits;
    std::memcpy(&bits, real, sizeof(bits));
    hash.AddNumber(bits);
  }
}

Hash128 KeyOf(std::span<const int32_t> prompt, const Message& message) {
  Hasher hash;
  hash.AddNumber(prompt.size());
  hash.AddBytes(std::as_bytes(prompt));
  hash.AddText(Trimmed(message.content));
  hash.AddNumber(message.tool_calls.size());
  for (const ToolCall& call : message.tool_calls) {
    hash.AddText(call.name);
    const std::string_view arguments = Trimmed(call.arguments);
    if (const auto json = ParseJson(arguments.empty() ? "{}" : arguments, "arguments"); json.ok()) {
      Add(*json, hash);
    } else {
      hash.AddText(arguments);
    }
  }
  return hash.Value();
}

// The file: a line, then records one after another, each with a checksum, so that one cut off or damaged ends what counts.
//   u32 number of ids, u64 key (high, low), u64 hash of the reasoning, the ids (i32), u64 XXH3-64 of all that; little-endian
constexpr std::string_view kFirstLine = "glint sampled turns, 1\n";
constexpr size_t kRecordHead = 4 + 3 * 8, kRecordEnd = 8;

void Append(const Turn& turn, std::string& out) {
  const size_t begin = out.size();
  const auto put = [&](const auto& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(static_cast<uint32_t>(turn.ids.size()));
  put(turn.key.high), put(turn.key.low), put(turn.reasoning);
  out.append(reinterpret_cast<const char*>(turn.ids.data()), turn.ids.size() * sizeof(int32_t));
  put(Hash64(std::as_bytes(std::span(out).subspan(begin))));
}

// The turns of a file's bytes, and how many of the bytes they are.
std::vector<Turn> Parse(std::string_view bytes, size_t* good) {
  std::vector<Turn> turns;
  *good = 0;
  if (!bytes.starts_with(kFirstLine)) return turns;
  *good = kFirstLine.size();
  while (bytes.size() - *good >= kRecordHead + kRecordEnd) {
    const std::string_view rest = bytes.substr(*good);
    const auto get = [&](size_t at, auto* value) { std::memcpy(value, rest.data() + at, sizeof(*value)); };
    uint32_t count = 0;
    get(0, &count);
    const size_t content = kRecordHead + size_t{count} * sizeof(int32_t);
    if (rest.size() - kRecordEnd < content) break;
    uint64_t hash = 0;
    get(content, &hash);
    if (hash != Hash64(std::as_bytes(std::span(rest.substr(0, content))))) break;
    Turn turn;
    get(4, &turn.key.high), get(12, &turn.key.low), get(20, &turn.reasoning);
    turn.ids.resize(count);
    std::memcpy(turn.ids.data(), rest.data() + kRecordHead, size_t{count} * sizeof(int32_t));
    turns.push_back(std::move(turn));
    *good += content + kRecordEnd;
  }
  return turns;
}

}  // namespace

struct SampledTurns::Impl {
  SampledTurnsOptions options;
  mutable std::mutex mutex;
  std::list<Turn> turns;  // the latest used first
  std::unordered_map<Hash128, std::list<Turn>::iterator, KeyHash> by_key;
  SampledTurnsStats counted;

  // Of the file.
  int file = -1;
  uint64_t file_bytes = 0;
  std::string to_write;  // records
  bool stop = false;
  std::condition_variable wake;
  std::thread writer;

  void Put(Turn turn);
  void OpenFile();
  void Run();
  bool Write(const std::string& records);
};

void SampledTurns::Impl::Put(Turn turn) {
  if (const auto found = by_key.find(turn.key); found != by_key.end()) {
    counted.bytes -= found->second->bytes();
    turns.erase(found->second);
    by_key.erase(found);
  }
  counted.bytes += turn.bytes();
  turns.push_front(std::move(turn));
  by_key.emplace(turns.front().key, turns.begin());
  while (counted.bytes > options.bytes && !turns.empty()) {
    counted.bytes -= turns.back().bytes();
    by_key.erase(turns.back().key);
    turns.pop_back();
  }
}

void SampledTurns::Impl::OpenFile() {
  const auto refuse = [&](const Status& status) {
    if (options.log)
      options.log(fmt::format("sampled turns: {}; they are kept in memory only", status.message()));
    if (file >= 0) close(std::exchange(file, -1));
  };
  file = open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return refuse(SystemError(options.path, "cannot open"));
  if (flock(file, LOCK_EX | LOCK_NB) != 0)
    return refuse({Code::kBadInput, options.path + ": another server uses it"});
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
    return refuse({Code::kBadInput, options.path + ": not a regular file"});
  // What is beyond that was never ours.
  const uint64_t size =
      std::min<uint64_t>(static_cast<uint64_t>(about.st_size), 4 * options.bytes + (uint64_t{16} << 20));
  std::string bytes(static_cast<size_t>(size), '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = pread(file, bytes.data() + got, bytes.size() - got, static_cast<off_t>(got));
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  bytes.resize(got);
  size_t good = 0;
  for (Turn& turn : Parse(bytes, &good)) Put(std::move(turn));
  if (good < static_cast<uint64_t>(about.st_size) && ftruncate(file, static_cast<off_t>(good)) != 0)
    return refuse(SystemError(options.path, "cannot cut off"));
  file_bytes = good;
}

// Without the mutex.
bool SampledTurns::Impl::Write(const std::string& records) {
  std::string bytes = file_bytes == 0 ? std::string(kFirstLine) + records : records;
  const Status status = WriteAllAt(file, file_bytes, std::as_bytes(std::span(bytes)), options.path);
  if (status.ok()) {
    file_bytes += bytes.size();
    return true;
  }
  if (options.log) options.log(fmt::format("sampled turns: {}", status.message()));
  return false;
}

void SampledTurns::Impl::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [this] { return stop || !to_write.empty(); });
    if (to_write.empty()) return;
    const std::string records = std::exchange(to_write, {});
    // Records of turns that are forgotten, or stand there twice, are left behind now and then.
    std::string all;
    if (file_bytes > 2 * options.bytes + (uint64_t{1} << 20)) {
      for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) Append(*turn, all);
    }
    lock.unlock();
    bool written = true;
    if (!all.empty()) {
      written = ftruncate(file, 0) == 0;
      file_bytes = written ? 0 : file_bytes;
    }
    written = written && Write(all.empty() ? records : all);
    lock.lock();
    if (!written) ++counted.file_failures;
  }
}

Result<std::unique_ptr<SampledTurns>> SampledTurns::Open(const SampledTurnsOptions& options) try {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  Impl& made = *impl;
  std::unique_ptr<SampledTurns> turns(new SampledTurns(std::move(impl)));
  if (!options.path.empty()) made.OpenFile();
  if (made.file >= 0) made.writer = std::thread([&made] { made.Run(); });
  return turns;
} catch (const std::system_error& error) {
  return Status(Code::kNoRoom, fmt::format("no thread for the sampled turns: {}", error.what()));
} catch (...) {
  return NoRoomOrRethrow();
}

SampledTurns::SampledTurns(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SampledTurns::~SampledTurns() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->wake.notify_all();
  }
  if (impl_->writer.joinable()) impl_->writer.join();
  if (impl_->file >= 0) close(impl_->file);
}

void SampledTurns::Remember(std::span<const int32_t> prompt, const Message& said,
                            std::span<const int32_t> ids) {
  if (ids.empty()) return;
  Turn turn{KeyOf(prompt, said), HashOf(said.reasoning), Ids(ids.begin(), ids.end())};
  const std::lock_guard lock(impl_->mutex);
  if (impl_->writer.joinable()) {
    Append(turn, impl_->to_write);
    impl_->wake.notify_one();
  }
  impl_->Put(std::move(turn));
}

Ids SampledTurns::Find(std::span<const int32_t> prompt, const Message& sent) {
  const Hash128 key = KeyOf(prompt, sent);
  const bool any_reasoning = Trimmed(sent.reasoning).empty();
  const uint64_t reasoning = HashOf(sent.reasoning);
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->by_key.find(key);
  if (found == impl_->by_key.end() || (!any_reasoning && found->second->reasoning != reasoning)) return {};
  impl_->turns.splice(impl_->turns.begin(), impl_->turns, found->second);
  ++impl_->counted.replayed;
  return found->second->ids;
}

SampledTurnsStats SampledTurns::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SampledTurnsStats stats = impl_->counted;
  stats.turns = impl_->turns.size();
  return stats;
}

// ---------------------------------------------------------------------------------------------- prompts

namespace {

std::string TextOf(const std::vector<ChatPart>& parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

// Encodes bytes [from, to) of the parts' text.
void EncodeSlice(const Tokenizer& tokenizer, const std::vector<ChatPart>& parts, size_t from, size_t to,
                 Ids& ids) {
  size_t at = 0;
  for (const ChatPart& part : parts) {
    const size_t begin = std::max(from, at), end = std::min(to, at + part.text.size());
    if (begin < end) {
      const auto more =
          tokenizer.Encode(std::string_view(part.text).substr(begin - at, end - begin), part.special);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    at += part.text.size();
  }
}

}  // namespace

Result<Ids> EncodeWithTurns(const Tokenizer& tokenizer, std::span<const Message> messages,
                            const ChatOptions& chat, SampledTurns* turns) {
  // Where earlier reasoning is to be left out, turns are not what they were.
  const bool any = turns != nullptr && !chat.clear_thinking &&
                   std::any_of(messages.begin(), messages.end(),
                               [](const Message& m) { return m.role == Role::kAssistant; });
  if (!any) return tokenizer.EncodeChat(messages, chat);
  const auto parts = tokenizer.RenderChat(messages, chat);
  if (!parts.ok()) return parts.status();
  const std::string whole = TextOf(*parts);
  const int32_t end_of_reasoning = tokenizer.Find("</think>");
  Ids ids;
  size_t done = 0;  // of the text
  bool replayed = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != Role::kAssistant) continue;
    // The turn is what rendering one message more adds to the prompt it was the answer to.
    ChatOptions open = chat, closed = chat;
    open.add_generation_prompt = true, closed.add_generation_prompt = false;
    const auto before = tokenizer.RenderChat(messages.first(i), open),
               after = tokenizer.RenderChat(messages.first(i + 1), closed);
    if (!before.ok() || !after.ok()) break;
    const std::string begin = TextOf(*before), end = TextOf(*after);
    if (!whole.starts_with(end) || !end.starts_with(begin) || begin.size() < done) break;
    EncodeSlice(tokenizer, *parts, done, begin.size(), ids);
    done = begin.size();
    Ids turn = turns->Find(ids, messages[i]);
    if (turn.empty() && end_of_reasoning >= 0 && OpensReasoning(tokenizer, ids)) {
      ids.push_back(end_of_reasoning);  // a prompt that asked for no reasoning
      turn = turns->Find(ids, messages[i]);
      if (turn.empty()) ids.pop_back();
    }
    if (turn.empty()) continue;
    ids.insert(ids.end(), turn.begin(), turn.end());
    done = end.size();
    replayed = true;
  }
  if (!replayed) return tokenizer.EncodeChat(messages, chat);
  EncodeSlice(tokenizer, *parts, done, whole.size(), ids);
  return ids;
}

}  // namespace glint::serve
