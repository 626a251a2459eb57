#include "engine/snapshot_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/no_room.h"
#include "base/printable.h"
#include "engine/model_impl.h"
#include "engine/section_io.h"

namespace glint::engine {
namespace {

using Kind = plan::StatePart::Kind;

Result<AtomicFile> NewFile(const std::string& path) { return AtomicFile::Create(path, {}, 0600); }

Status Damaged(const std::string& path, const std::string& what) {
  return {Code::kBadFile, fmt::format("{}: {}", Printable(path), what)};
}

Status CheckModel(const Model& model, const SessionHeader& header, const std::string& path) {
  const auto& prints = model.impl()->fingerprints();
  if (header.model == prints.trunk && header.tokenizer == model.impl()->tokenizer_fingerprint &&
      (!header.mtp || prints.mtp.empty() || header.mtp_model == prints.mtp)) {
    return {};
  }
  return {Code::kBadInput, fmt::format("{}: was kept with another model (fingerprint {}, this one has {})",
                                       Printable(path), header.model, prints.trunk)};
}

Status CheckIds(const std::vector<int32_t>& tokens, int64_t vocab, const std::string& path) {
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  return bad == tokens.end() ? Status() : Damaged(path, fmt::format("id {} of {}", *bad, vocab));
}

// A kind of rows of a layer, in a file and in pieces.
struct Lane {
  Kind kind;
  int layer;
  int64_t width, rows;  // rows of a piece
  int64_t at;           // in a piece, in floats
};

std::vector<Lane> LanesOf(const RowsLayout& layout) {
  std::vector<Lane> lanes;
  for (const auto& l : layout.layers) {
    lanes.push_back({Kind::kLatent, l.layer, l.latent_width, layout.tokens, l.latent_at});
    lanes.push_back({Kind::kPooledKey, l.layer, l.pooled_width, layout.pools, l.pooled_at});
  }
  return lanes;
}

// Copies rows [first, first + n) of a lane between a stretch and pieces that begin with piece 0 of `pieces`.
template <class Piece, class Copy>
void ForRows(const Lane& lane, int64_t first, int64_t rows, Piece&& piece, Copy&& copy) {
  for (int64_t done = 0; done < rows;) {
    const int64_t row = first + done, inside = row % lane.rows,
                  count = std::min(rows - done, lane.rows - inside);
    copy(piece(row / lane.rows) + lane.at + inside * lane.width, done * lane.width, count * lane.width);
    done += count;
  }
}

// Pieces [from, to) of a file of caches that begins with piece `first`.
Status ReadPieces(const SectionFile& file, const RowsLayout& layout, int64_t from, int64_t to,
                  const std::string& path, std::vector<std::vector<float>>& pieces, FileBytes* read) {
  const auto lanes = LanesOf(layout);
  std::vector<int64_t> next(lanes.size());
  for (size_t i = 0; i < lanes.size(); ++i) next[i] = from * lanes[i].rows;
  std::vector<float> floats;
  for (const SessionSection& section : file.header().sections) {
    if (section.kind != SessionSection::Kind::kState) continue;
    const auto& part = section.part;
    const auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& l) {
      return l.kind == part.kind && l.layer == part.layer && l.width == part.width;
    });
    if (lane == lanes.end()) return Damaged(path, Describe(section) + " is no cache of this model's");
    int64_t& wanted = next[static_cast<size_t>(lane - lanes.begin())];
    const int64_t end = std::min(part.first + part.rows, to * lane->rows);
    if (part.first > wanted || end <= wanted) continue;
    floats.resize(static_cast<size_t>(part.rows * part.width));
    if (Status status = file.Read(section, std::as_writable_bytes(std::span(floats))); !status.ok())
      return status;
    read->bytes += section.bytes;
    const float* const source = floats.data() + (wanted - part.first) * part.width;
    ForRows(
        *lane, wanted, end - wanted,
        [&](int64_t piece) { return pieces[static_cast<size_t>(piece - from)].data(); },
        [&](float* to_piece, int64_t at, int64_t count) { std::copy_n(source + at, count, to_piece); });
    wanted = end;
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (next[i] != to * lanes[i].rows) {
      return Damaged(path, fmt::format("{} of layer {} is not there from row {} on", Name(lanes[i].kind),
                                       lanes[i].layer, next[i]));
    }
  }
  return {};
}

Result<std::shared_ptr<const Snapshot>> Load(const Model& model, const std::string& state,
                                             std::span<const RowsRange> rows, const Snapshot* like,
                                             const RowsPiece::Gauge& gauge, FileBytes* read,
                                             std::string* bad) {
  *bad = state;
  const auto file = SectionFile::Open(state);
  if (!file.ok()) return file.status();
  const SessionHeader& header = file->header();
  if (Status status = CheckModel(model, header, state); !status.ok()) return status;
  SnapshotData data;
  data.model = header.model, data.mtp_model = header.mtp_model, data.tokenizer = header.tokenizer;
  data.mtp_position = header.mtp_position, data.mtp = header.mtp;
  if (Status status = file->ReadTokens(&data.tokens); !status.ok()) return status;
  if (Status status = CheckIds(data.tokens, model.vocab_size(), state); !status.ok()) return status;
  for (const SessionSection& section : header.sections) {
    if (section.kind != SessionSection::Kind::kState) continue;
    // Long parts are several sections.
    auto* before = data.own.empty() ? nullptr : &data.own.back();
    const auto& part = section.part;
    if (before == nullptr || before->part.kind != part.kind || before->part.layer != part.layer ||
        before->part.width != part.width || before->part.first + before->part.rows != part.first) {
      before = &data.own.emplace_back(SnapshotData::Own{part, {}});
      before->part.rows = 0;
    }
    const size_t had = before->floats.size();
    before->part.rows += part.rows;
    before->floats.resize(had + static_cast<size_t>(part.rows * part.width));
    const auto out = std::span(before->floats).subspan(had);
    if (Status status = file->Read(section, std::as_writable_bytes(out)); !status.ok()) return status;
    if (!AllFinite(out)) return Damaged(state, Describe(section) + ": not every number is finite");
    read->bytes += section.bytes;
  }

  const RowsLayout layout = RowsLayout::Of(model);
  const int64_t pieces = std::ssize(data.tokens) / layout.tokens;
  if (like != nullptr) {
    const auto& theirs = like->data();
    const auto same =
        std::mismatch(theirs.tokens.begin(), theirs.tokens.end(), data.tokens.begin(), data.tokens.end());
    const int64_t shared = std::min({(same.first - theirs.tokens.begin()) / layout.tokens,
                                     static_cast<int64_t>(std::ssize(theirs.rows)), pieces});
    data.rows.assign(theirs.rows.begin(), theirs.rows.begin() + shared);
  }
  int64_t covered = 0;
  for (const RowsRange& range : rows) {
    *bad = range.path;
    const int64_t first = range.first / layout.tokens, end = range.end / layout.tokens;
    if (range.first != covered * layout.tokens || end <= first || end > pieces ||
        range.end % layout.tokens != 0) {
      *bad = state;
      return Damaged(state, fmt::format("caches of tokens {} to {} of {} do not follow one another",
                                        range.first, range.end, data.tokens.size()));
    }
    covered = end;
    const int64_t from = std::max<int64_t>(first, std::ssize(data.rows));
    if (from >= end) continue;
    const auto caches = SectionFile::Open(range.path);
    if (!caches.ok()) return caches.status();
    if (Status status = CheckModel(model, caches->header(), range.path); !status.ok()) return status;
    std::vector<int32_t> tokens;
    if (Status status = caches->ReadTokens(&tokens); !status.ok()) return status;
    if (std::ssize(tokens) < range.end ||
        !std::equal(tokens.begin(), tokens.begin() + range.end, data.tokens.begin()))
      return Damaged(range.path, "holds the caches of other tokens");
    std::vector<std::vector<float>> fresh(static_cast<size_t>(end - from));
    for (auto& floats : fresh) floats.resize(static_cast<size_t>(layout.floats));
    if (Status status = ReadPieces(*caches, layout, from, end, range.path, fresh, read); !status.ok())
      return status;
    for (auto& floats : fresh)
      data.rows.push_back(std::make_shared<const RowsPiece>(std::move(floats), gauge));
  }
  *bad = state;
  if (covered < pieces && std::ssize(data.rows) < pieces)
    return Damaged(state, fmt::format("names no caches from token {} on", covered * layout.tokens));
  bad->clear();
  return std::make_shared<const Snapshot>(std::move(data));
}

}  // namespace

Status SaveRows(const Model& model, const Snapshot& snapshot, int64_t first, int64_t end,
                const std::string& path, FileBytes* written) try {
  const SnapshotData& data = snapshot.data();
  const RowsLayout layout = RowsLayout::Of(model);
  if (first < 0 || first >= end || first % layout.tokens != 0 || end % layout.tokens != 0 ||
      end / layout.tokens > std::ssize(data.rows)) {
    return {Code::kInternal, fmt::format("caches of tokens {} to {} of {}", first, end, data.tokens.size())};
  }
  const auto lanes = LanesOf(layout);
  size_t sections = 1;
  for (const Lane& lane : lanes)
    sections += SectionsOf({lane.kind, lane.layer, 0, (end - first) / layout.tokens * lane.rows, lane.width});
  auto file = NewFile(path);
  if (!file.ok()) return file.status();
  const auto floats_in_all = static_cast<uint64_t>((end - first) / layout.tokens * layout.floats);
  auto writer =
      SectionWriter::Create(std::move(*file), sections, 4 * (floats_in_all + static_cast<uint64_t>(end)));
  if (!writer.ok()) return writer.status();
  if (Status status = writer->AddTokens(std::span(data.tokens).first(static_cast<size_t>(end))); !status.ok())
    return status;
  std::vector<float> floats;
  for (const Lane& lane : lanes) {
    const int64_t last = end / layout.tokens * lane.rows;
    for (int64_t row = first / layout.tokens * lane.rows; row < last;) {
      plan::StatePart part{lane.kind, lane.layer, row, last - row, lane.width};
      part.rows = std::min(part.rows, RowsOfSection(part));
      floats.resize(static_cast<size_t>(part.rows * part.width));
      ForRows(
          lane, row, part.rows,
          [&](int64_t piece) { return data.rows[static_cast<size_t>(piece)]->floats().data(); },
          [&](const float* from, int64_t at, int64_t count) {
            std::copy_n(from, count, floats.data() + at);
          });
      if (Status status = writer->AddState(part, floats); !status.ok()) return status;
      row += part.rows;
    }
  }
  Status status =
      writer->Finish({.model = data.model, .tokenizer = data.tokenizer, .position = end, .capacity = end});
  if (status.ok()) written->bytes += writer->size();
  return status;
} catch (...) {
  return NoRoomOrRethrow();
}

Status SaveState(const Snapshot& snapshot, const std::string& path, std::string_view attachment,
                 FileBytes* written) try {
  const SnapshotData& data = snapshot.data();
  size_t sections = attachment.empty() ? 1 : 2;
  for (const auto& own : data.own) sections += SectionsOf(own.part);
  auto file = NewFile(path);
  if (!file.ok()) return file.status();
  auto writer = SectionWriter::Create(std::move(*file), sections, snapshot.own_bytes() + attachment.size());
  if (!writer.ok()) return writer.status();
  if (Status status = writer->AddTokens(data.tokens); !status.ok()) return status;
  if (!attachment.empty()) {
    if (Status status = writer->AddAttachment(attachment); !status.ok()) return status;
  }
  for (const auto& own : data.own) {
    for (int64_t row = 0; row < own.part.rows;) {
      plan::StatePart part = own.part;
      part.first += row;
      part.rows = std::min(part.rows - row, RowsOfSection(part));
      const auto floats =
          std::span(own.floats)
              .subspan(static_cast<size_t>(row * part.width), static_cast<size_t>(part.rows * part.width));
      if (Status status = writer->AddState(part, floats); !status.ok()) return status;
      row += part.rows;
    }
  }
  const int64_t position = snapshot.position();
  Status status = writer->Finish({.model = data.model,
                                  .mtp_model = data.mtp_model,
                                  .tokenizer = data.tokenizer,
                                  .position = position,
                                  .mtp_position = data.mtp_position,
                                  .capacity = std::max(position, data.mtp_position),
                                  .mtp = data.mtp});
  if (status.ok()) written->bytes += writer->size();
  return status;
} catch (...) {
  return NoRoomOrRethrow();
}

Result<SnapshotFileInfo> LookAt(const Model& model, const std::string& path) try {
  const auto file = SectionFile::Open(path);
  if (!file.ok()) return file.status();
  if (Status status = CheckModel(model, file->header(), path); !status.ok()) return status;
  SnapshotFileInfo info{.mtp = file->header().mtp, .bytes = file->size()};
  if (Status status = file->ReadTokens(&info.tokens); !status.ok()) return status;
  if (Status status = CheckIds(info.tokens, model.vocab_size(), path); !status.ok()) return status;
  if (Status status = file->ReadAttachment(&info.attachment); !status.ok()) return status;
  return info;
} catch (...) {
  return NoRoomOrRethrow();
}

Result<std::shared_ptr<const Snapshot>> LoadSnapshot(const Model& model, const std::string& state,
                                                     std::span<const RowsRange> rows, const Snapshot* like,
                                                     const RowsPiece::Gauge& gauge, FileBytes* read,
                                                     std::string* bad) try {
  return Load(model, state, rows, like, gauge, read, bad);
} catch (...) {
  bad->clear();
  return NoRoomOrRethrow();
}

}  // namespace glint::engine
