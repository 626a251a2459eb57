// Any bytes as a session file: as they are, and with checksums, sizes and fingerprints put right, so that what lies behind them is
// reached. What loads must be a session like any other: it takes a token and is saved and loaded again.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/session_file.h"
#include "engine/session_store.h"
#include "fuzz/session_model.h"
#include "tests/support/session_bytes.h"

namespace {

using namespace glint;
using namespace glint::engine;

using test::NumberAt;
using test::PutNumber;

void Fingerprint(std::string& file, size_t at, const std::string& print) {
  for (size_t i = 0; i < 16; ++i) {
    file[at + i] = static_cast<char>(print.empty() ? 0 : std::stoul(print.substr(2 * i, 2), nullptr, 16));
  }
}

void Repair(std::string& file) {
  if (file.size() < kSessionFixedBytes) return;
  std::memcpy(file.data(), kSessionMagic.data(), kSessionMagic.size());
  const auto& model = fuzz::SessionModel();
  Fingerprint(file, 32, model.fingerprint());
  if (NumberAt(file, 104, 4) == 1) Fingerprint(file, 48, model.mtp_fingerprint());
  Fingerprint(file, 64, model.tokenizer_fingerprint());
  const size_t sections =
      std::min<size_t>(NumberAt(file, 108, 4), (file.size() - kSessionFixedBytes) / kSessionSectionBytes);
  const size_t header = kSessionFixedBytes + sections * kSessionSectionBytes;
  PutNumber(file, 12, 4, header);
  PutNumber(file, 16, 8, file.size());
  PutNumber(file, 108, 4, sections);
  uint64_t next = header;
  for (size_t i = 0; i < sections; ++i) {
    const size_t at = kSessionFixedBytes + i * kSessionSectionBytes;
    const uint64_t room = file.size() - next;
    const uint64_t bytes = i + 1 == sections ? room : std::min(NumberAt(file, at + 48, 8), room);
    PutNumber(file, at + 40, 8, next);
    PutNumber(file, at + 48, 8, bytes);
    next += bytes;
  }
  test::Seal(file);
}

void Load(std::span<const std::byte> file, bool mtp) {
  std::string attachment;
  auto session =
      LoadSession(fuzz::SessionModel(), file, "fuzz", {.context = 64, .mtp = mtp}, &attachment, {});
  if (!session.ok()) {
    if (session.status().code() == Code::kInternal) std::abort();
    return;
  }
  if (session->position() < session->capacity()) {
    std::vector<float> logits(static_cast<size_t>(fuzz::SessionModel().vocab_size()));
    const int32_t token = 1;
    if (!session->Append({&token, 1}, LogitRows::kLast, logits).ok()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  Load(bytes, false);
  Repair(file);
  Load(bytes, false);
  Load(bytes, true);
  return 0;
}
