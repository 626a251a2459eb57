// Responses that clients may ask for again, or go on from: one SQLite file that outlives the server.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "glint/status.h"

namespace glint::serve {

struct ResponseStoreOptions {
  // Of the file, in a folder that exists; made with mode 0600. Empty: memory, which nothing outlives.
  std::string path = {};
  // Whichever is reached first. Bytes are those of the contents; the file is at most a fifth larger.
  uint64_t max_responses = 10'000;
  uint64_t max_bytes = uint64_t{1} << 30;
  uint32_t lock_wait_ms = 5'000;  // how long another process may hold the file
};

struct StoredResponse {
  std::string id;        // IsResponseId
  std::string previous;  // id of the response that it went on from; empty: none
  int64_t created = 0;   // seconds since 1970
  std::string body;      // the response, as it is given to whoever asks for it
  std::string input;     // its input items, a JSON array
  std::string output;    // its output items, a JSON array
  std::string
      before;  // for Put: the items of `previous`'s conversation, a JSON array, should it be gone by now
  // The tokens that the answer's sequence had at its end: those of the prompt, and those that were sampled. May be empty.
  std::vector<int32_t> tokens;
};

// What a response goes on from: everything said up to and with the one named.
struct StoredConversation {
  std::vector<std::string> items;  // JSON arrays, in order
  std::vector<int32_t> tokens;     // as the last response's; empty if it had none
};

struct ResponseStoreCounts {
  uint64_t responses = 0;  // that can be asked for
  uint64_t turns = 0;      // rows: these, and those that are kept because later ones go on from them
  uint64_t bytes = 0;
};

// "resp_" and 1 to 128 letters and digits. What is none is in no store.
bool IsResponseId(std::string_view id);
// 32 letters and digits from the system's source of random numbers: 190 bits, so that nobody guesses the name of what others said.
std::string NewResponseKey();

// A response's row holds what it added to its conversation and points to the row before: a long conversation is kept once, not once for
// each of its responses; of tokens, too, a row has those alone that its predecessor has not. Rows that are deleted, or out of the
// budget (oldest first), lose the response; what they said stays for as long as a later response goes on from them, and counts in the
// budget. A response that would not fit with its own conversation is refused.
//
// Each row has a checksum, and the whole is looked through when it is opened. A file that is damaged, or is none of ours, is renamed to
// PATH.damaged-N, which notice() says, and a new one begun; one that a newer glint has written is an error. Several processes may have
// one file open: each write is a transaction, in SQLite's write-ahead log, so that a killed process leaves what it had finished. (A
// machine that loses power may lose the last responses, but not the file.)
//
// Thread-safe; calls wait for each other. Errors: kNoRoom, the disk or the budget is too small; kIo, the system refused, or another
// process held the file too long; kBadFile, a row is not what was written; then nothing has changed.
class ResponseStore {
 public:
  // kUnsupported: the file is of a newer version.
  static Result<std::unique_ptr<ResponseStore>> Open(ResponseStoreOptions options);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  // What was found and done while opening, for the log; empty: nothing worth a word.
  const std::string& notice() const;

  // kBadInput: the id is none, or taken.
  Status Put(const StoredResponse& response);
  // Without `before` and `tokens`. Nothing: there is none of that id (any more).
  Result<std::optional<StoredResponse>> Get(std::string_view id);
  Result<std::optional<StoredConversation>> Conversation(std::string_view id);
  // Whether there was one.
  Result<bool> Delete(std::string_view id);
  Result<ResponseStoreCounts> Counts();

 private:
  class Impl;
  explicit ResponseStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace glint::serve
