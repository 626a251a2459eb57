#include "engine/session_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/mutation.h"
#include "base/no_room.h"
#include "base/printable.h"
#include "engine/section_io.h"
#include "engine/session_file.h"
#include "engine/session_impl.h"

namespace glint {
namespace engine {
namespace {

using Kind = SessionSection::Kind;
using PartKind = plan::StatePart::Kind;
using Step = std::function<bool(uint64_t, uint64_t)>;

Status SaveSession(const SessionImpl& session, AtomicFile file, std::string_view attachment,
                   const Step& progress) {
  const plan::SequenceState& state = *session.state;
  const auto& prints = session.model->fingerprints();
  SessionHeader header;
  header.model = prints.trunk;
  header.mtp = session.options.mtp;
  header.mtp_model = header.mtp ? prints.mtp : std::string();
  header.tokenizer = session.model->tokenizer_fingerprint;
  header.position = state.position();
  header.mtp_position = state.mtp_position();
  header.capacity = state.capacity();
  const auto parts = state.Parts(header.position, header.mtp_position);
  size_t sections = attachment.empty() ? 1 : 2;
  uint64_t done = 0, total = 0;
  for (const auto& part : parts) {
    sections += SectionsOf(part);
    total += 4 * static_cast<uint64_t>(part.rows * part.width);
  }
  auto writer =
      SectionWriter::Create(std::move(file), sections, 4 * session.tokens.size() + attachment.size() + total);
  if (!writer.ok()) return writer.status();
  if (Status status = writer->AddTokens(session.tokens); !status.ok()) return status;
  if (!attachment.empty()) {
    if (Status status = writer->AddAttachment(attachment); !status.ok()) return status;
  }
  std::vector<float> floats;
  for (const auto& part : parts) {
    const int64_t most = RowsOfSection(part);
    for (int64_t row = 0; row < part.rows; row += most) {
      plan::StatePart rows = part;
      rows.first += row;
      rows.rows = std::min(most, part.rows - row);
      floats.resize(static_cast<size_t>(rows.rows * rows.width));
      {
        const std::lock_guard lock(session.model->mutex);
        if (Status status = state.Read(rows, floats.data()); !status.ok()) return status;
      }
      if (Status status = writer->AddState(rows, floats); !status.ok()) return status;
      done += floats.size() * sizeof(float);
      if (progress && !progress(done, total)) return {Code::kBadInput, "interrupted"};
    }
  }
  return writer->Finish(std::move(header));
}

// A file that is replaced must be one of these: a slip of the finger does not cost a document.
Status CheckReplaced(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status().code() == Code::kNotFound ? Status() : file.status();
  const auto bytes = file->bytes();
  const bool ours = bytes.size() >= kSessionMagic.size() &&
                    std::memcmp(bytes.data(), kSessionMagic.data(), kSessionMagic.size()) == 0;
  if (ours || bytes.empty()) return {};
  return {Code::kBadInput,
          fmt::format("{}: exists and is not a session file, so it is not replaced; name another",
                      Printable(path))};
}

Status CheckModel(const SessionHeader& header, ModelImpl& model, const SessionOptions& options) {
  const auto& prints = model.fingerprints();
  const auto other = [](std::string_view what, const std::string& theirs, const std::string& ours) {
    return Status(
        Code::kBadInput,
        fmt::format(
            "the session was saved with another {} (fingerprint {}, this one has {}); load it with the model "
            "that it was saved with, or start a new session",
            what, theirs.empty() ? "none" : theirs, ours.empty() ? "none" : ours));
  };
  if (Mutated(Mutation::kLoadTakesAnyModel)) return {};
  if (header.model != prints.trunk) return other("model", header.model, prints.trunk);
  if (header.tokenizer != model.tokenizer_fingerprint)
    return other("tokenizer", header.tokenizer, model.tokenizer_fingerprint);
  if (!options.mtp) return {};
  if (!header.mtp) {
    return {Code::kBadInput,
            "the session was saved without the MTP block's rows, which cannot be made later; load it without "
            "speculation, or start a new session"};
  }
  if (header.mtp_model != prints.mtp) return other("MTP block", header.mtp_model, prints.mtp);
  return {};
}

Status CheckTokens(std::span<const int32_t> tokens, int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    return {Code::kBadFile, fmt::format("the session file is damaged: token {} is id {}; ids go from 0 to {}",
                                        i, tokens[i], vocab - 1)};
  }
  return {};
}

// Writes the state's sections into a fresh session, which they must fill without a gap.
class Filler {
 public:
  Filler(std::span<const std::byte> bytes, const SessionHeader& header, SessionImpl& session,
         const Step& progress)
      : bytes_(bytes), header_(header), session_(session), progress_(progress) {}

  Status Fill() {
    const int mtp_layer = static_cast<int>(session_.model->data.hparams.layers);
    const bool keep_mtp = session_.options.mtp;
    const int64_t mtp_position = keep_mtp ? header_.mtp_position : 0;
    std::vector<SessionSection> sections;
    for (const SessionSection& s : header_.sections) {
      if (s.kind == Kind::kState && (keep_mtp || s.part.layer != mtp_layer)) sections.push_back(s);
      total_ += s.bytes;
    }
    const auto parts = session_.state->Parts(header_.position, mtp_position);
    // First the whole list, then the first byte of content.
    size_t next = 0;
    int64_t raw_key_first = -1;
    for (const plan::StatePart& part : parts) {
      const bool raw = part.kind == PartKind::kRawKey || part.kind == PartKind::kRawGate;
      int64_t row = part.first;
      const int64_t end = part.first + part.rows;
      if (raw && part.layer == mtp_layer) {
        // These reach back as far as they are still known; keys and gates alike.
        row = end;
        if (next < sections.size() && Same(sections[next].part, part))
          row = std::clamp(sections[next].part.first, part.first, end);
        if (part.kind == PartKind::kRawKey) raw_key_first = row;
        if (part.kind == PartKind::kRawGate && row != raw_key_first) return Unexpected(part, row);
      }
      for (; row < end; ++next) {
        const bool fits = next < sections.size() && Same(sections[next].part, part) &&
                          sections[next].part.first == row && sections[next].part.rows <= end - row;
        if (!fits) return Unexpected(part, row);
        row += sections[next].part.rows;
      }
    }
    if (next != sections.size()) {
      return {Code::kBadFile, fmt::format("the session file is damaged: {} is no part of this model's state",
                                          Describe(sections[next]))};
    }
    for (const SessionSection& section : sections) {
      if (Status status = Write(section); !status.ok()) return status;
    }
    const std::lock_guard lock(session_.model->mutex);
    return session_.state->Place(header_.position, mtp_position);
  }

 private:
  static bool Same(const plan::StatePart& a, const plan::StatePart& b) {
    return a.kind == b.kind && a.layer == b.layer && a.width == b.width;
  }
  static Status Unexpected(const plan::StatePart& part, int64_t row) {
    return {Code::kBadFile, fmt::format("the session file is damaged: {} of layer {} is not there from row "
                                        "{} on; use a whole copy of it, or "
                                        "start a new session",
                                        Name(part.kind), part.layer, row)};
  }

  Status Write(const SessionSection& section) {
    floats_.resize(static_cast<size_t>(section.part.rows * section.part.width));
    if (Status status = ReadSection(bytes_, section, std::as_writable_bytes(std::span(floats_)));
        !status.ok())
      return status;
    if (Mutated(Mutation::kLoadForgetsAPart) && section.part.kind == PartKind::kConv) return {};
    const std::lock_guard lock(session_.model->mutex);
    if (Status status = session_.state->Write(section.part, floats_.data()); !status.ok()) return status;
    done_ += section.bytes;
    if (progress_ && !progress_(done_, total_)) return {Code::kBadInput, "interrupted"};
    return {};
  }

  std::span<const std::byte> bytes_;
  const SessionHeader& header_;
  SessionImpl& session_;
  const Step& progress_;
  std::vector<float> floats_;
  uint64_t done_ = 0, total_ = 0;
};

Result<Session> Load(const Model& model, std::span<const std::byte> bytes, const SessionOptions& options,
                     std::string* attachment, const Step& progress) {
  const auto header = ParseSessionHeader(bytes);
  if (!header.ok()) return header.status();
  if (Status status = CheckModel(*header, *model.impl(), options); !status.ok()) return status;
  SessionOptions wanted = options;
  if (wanted.context == 0) wanted.context = std::max<int64_t>(1, header->capacity);
  const int64_t needed = std::max(header->position, options.mtp ? header->mtp_position : 0);
  if (needed > wanted.context) {
    return Status(Code::kNoRoom,
                  fmt::format("the session has {} tokens, a context of {} does not hold them; ask for more",
                              needed, wanted.context));
  }
  // The tokens and the attachment are no larger than the file.
  std::vector<int32_t> tokens(static_cast<size_t>(header->position));
  Status status = ReadSection(bytes, header->sections[0], std::as_writable_bytes(std::span(tokens)));
  if (!status.ok()) return status;
  if (status = CheckTokens(tokens, model.vocab_size()); !status.ok()) return status;
  std::string text;
  if (header->sections.size() > 1 && header->sections[1].kind == Kind::kAttachment) {
    text.resize(static_cast<size_t>(header->sections[1].part.rows));
    status = ReadSection(bytes, header->sections[1], std::as_writable_bytes(std::span(text)));
    if (!status.ok()) return status;
  }
  auto session = Session::Create(model, wanted);
  if (!session.ok()) return session.status();
  status = Filler(bytes, *header, session->impl(), progress).Fill();
  if (!status.ok()) return status;
  session->impl().tokens = std::move(tokens);
  if (attachment != nullptr) *attachment = std::move(text);
  return session;
}

}  // namespace

Result<Session> LoadSession(const Model& model, std::span<const std::byte> bytes, const std::string& name,
                            const SessionOptions& options, std::string* attachment, const Step& progress) {
  auto session = Load(model, bytes, options, attachment, progress);
  if (session.ok()) return session;
  return Status(session.status().code(), fmt::format("{}: {}", Printable(name), session.status().message()));
}

}  // namespace engine

Status Session::Save(const std::string& path, std::string_view attachment,
                     const std::function<bool(uint64_t, uint64_t)>& progress) const try {
  if (attachment.size() > engine::kAttachmentBytes) {
    return {Code::kBadInput, fmt::format("an attachment of {} bytes; {} are possible", attachment.size(),
                                         engine::kAttachmentBytes)};
  }
  if (Status status = impl_->Usable(); !status.ok()) return status;
  if (Status status = engine::CheckReplaced(path); !status.ok()) return status;
  auto file = AtomicFile::Create(path, impl_->model->data.files, 0600);
  if (!file.ok()) return file.status();
  return engine::SaveSession(*impl_, std::move(*file), attachment, progress);
} catch (...) {
  return NoRoomOrRethrow();
}

Result<Session> Session::Load(const Model& model, const std::string& path, const SessionOptions& options,
                              std::string* attachment,
                              const std::function<bool(uint64_t, uint64_t)>& progress) try {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  return engine::LoadSession(model, file->bytes(), path, options, attachment, progress);
} catch (...) {
  return NoRoomOrRethrow();
}

}  // namespace glint
