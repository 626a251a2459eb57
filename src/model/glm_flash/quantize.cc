#include "model/quantize.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "base/hash.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "gguf/copy.h"
#include "model/file_type.h"
#include "model/glm_flash/gguf_source.h"
#include "model/glm_flash/hparams_gguf.h"
#include "quant/nvfp4.h"
#include "quant/range.h"

namespace glint::model {
namespace {

using quant::Type;

// Rows are encoded in batches of about this many weights: the whole of what is in memory at a time.
constexpr uint64_t kBatchWeights = uint64_t{1} << 20;
// Types of fewer bits a weight than this lose much without an importance matrix.
constexpr double kFewBits = 2.7;
constexpr std::string_view kWeight = ".weight", kScale = ".scale";

double BitsAWeight(const quant::Format& format) {
  return 8.0 * static_cast<double>(format.block_bytes) / static_cast<double>(format.block_weights);
}

// Of the tensor of second scales that is written beside a matrix; empty where readers look for none.
std::string ScaleName(std::string_view matrix) {
  if (!matrix.ends_with(kWeight)) return {};
  return std::string(matrix.substr(0, matrix.size() - kWeight.size())) + std::string(kScale);
}

// What is done with one tensor of the input.
struct Job {
  const gguf::TensorInfo* info = nullptr;
  const gguf::TensorInfo* factors = nullptr;  // second scales beside an NVFP4 matrix
  size_t report = 0;                          // its place in QuantizeReport::tensors
  const Importance* importance = nullptr;

  uint64_t columns() const { return info->ne[0]; }
  uint64_t rows() const { return info->ne[1]; }
  uint64_t slices() const { return info->ne[2] * info->ne[3]; }
};

// Streams one tensor in its new type, or checks that it could.
class Encoding {
 public:
  Encoding(const gguf::File& file, const Job& job, QuantizedTensor& report, ThreadPool& threads, bool dry)
      : file_(file),
        job_(job),
        report_(report),
        from_(*quant::Find(report.from)),
        to_(*quant::Find(report.to)),
        threads_(threads),
        dry_(dry) {}

  // What follows the first `from` bytes, whole rows.
  Status operator()(uint64_t from, const gguf::Writer::Sink& sink) {
    const size_t columns = job_.columns(), from_row = columns / from_.block_weights * from_.block_bytes;
    const size_t to_row = columns / to_.block_weights * to_.block_bytes;
    const auto batch =
        static_cast<size_t>(std::min<uint64_t>(std::max<uint64_t>(kBatchWeights / columns, 1), job_.rows()));
    std::vector<float> weights(batch * columns), again(static_cast<size_t>(threads_.threads()) * columns);
    std::vector<std::byte> encoded(batch * to_row);
    std::vector<RowError> errors(batch);
    const uint64_t begin_row = from / to_row;
    if (from == 0) sums_ = {};
    for (uint64_t slice = begin_row / job_.rows(); slice < job_.slices(); ++slice) {
      const uint64_t begin = slice == begin_row / job_.rows() ? begin_row % job_.rows() : 0;
      const float factor = Factor(slice);
      const float inverse = 1 / SecondScale(slice);
      const std::vector<float> importance = ImportanceOf(slice);
      for (uint64_t first = begin; first < job_.rows(); first += batch) {
        const size_t rows = static_cast<size_t>(std::min<uint64_t>(batch, job_.rows() - first));
        const std::byte* const source = job_.info->data + (slice * job_.rows() + first) * from_row;
        std::atomic<uint64_t> bad{UINT64_MAX};  // the first weight that can not be stored
        threads_.ParallelFor(rows, 1, [&](size_t low, size_t high, int worker) {
          for (size_t r = low; r < high; ++r) {
            float* const row = weights.data() + r * columns;
            from_.decode(source + r * from_row, row, columns);
            if (factor != 1)
              for (size_t c = 0; c < columns; ++c) row[c] *= factor;
            if (const size_t c = FirstBad(row, columns); c < columns) {
              uint64_t seen = bad.load();
              while (r * columns + c < seen && !bad.compare_exchange_weak(seen, r * columns + c)) {
              }
              continue;
            }
            if (dry_) continue;
            if (inverse != 1)
              for (size_t c = 0; c < columns; ++c) row[c] *= inverse;
            std::byte* const out = encoded.data() + r * to_row;
            to_.encode(row, importance.empty() ? nullptr : importance.data(), out, columns);
            float* const back = again.data() + static_cast<size_t>(worker) * columns;
            to_.decode(out, back, columns);
            errors[r] = ErrorOf(row, back, 1 / inverse);
          }
        });
        if (const uint64_t at = bad.load(); at != UINT64_MAX)
          return Refuse(slice, first + at / columns, at % columns, weights[static_cast<size_t>(at)]);
        MappedFile::Release({source, rows * from_row});
        if (!dry_)
          for (size_t r = 0; r < rows; ++r) sums_.Add(errors[r]);  // in this order whatever the threads did
        if (Status s = sink(std::span(encoded).first(rows * to_row)); !s.ok()) return s;
      }
    }
    Report();
    return {};
  }

  // The sums of what was given so far, exactly, and back: a later run goes on with them.
  std::string Remember() const { return fmt::format("{} {} {}", sums_.error, sums_.square, sums_.worst); }
  void Recall(const std::string& line) {
    const char* at = line.data();
    const char* const end = at + line.size();
    for (double* const sum : {&sums_.error, &sums_.square, &sums_.worst}) {
      at = std::from_chars(at, end, *sum).ptr;
      if (at < end) ++at;
    }
    Report();
  }

  // Second scales of a matrix that becomes NVFP4, one a slice.
  Status GiveSecondScales(const gguf::Writer::Sink& sink) {
    std::vector<float> scales;
    for (uint64_t slice = 0; slice < job_.slices(); ++slice) scales.push_back(SecondScale(slice));
    return sink(std::as_bytes(std::span(scales)));
  }

 private:
  struct RowError {
    double error = 0, square = 0, worst = 0;  // worst: mean squared error of the worst block
  };
  struct Sums {
    double error = 0, square = 0, worst = 0;
    void Add(const RowError& row) {
      error += row.error;
      square += row.square;
      worst = std::max(worst, row.worst);
    }
  };

  void Report() {
    if (!(sums_.square > 0)) return;
    const double count = static_cast<double>(job_.info->elements());
    report_.relative_rms = std::sqrt(sums_.error / sums_.square);
    report_.largest_block = std::sqrt(sums_.worst / (sums_.square / count));
  }

  RowError ErrorOf(const float* row, const float* back, float scale) const {
    RowError out;
    for (size_t block = 0; block < job_.columns(); block += to_.block_weights) {
      double error = 0;
      for (size_t i = block; i < block + to_.block_weights; ++i) {
        const double off = (static_cast<double>(row[i]) - back[i]) * scale;
        const double x = static_cast<double>(row[i]) * scale;
        error += off * off;
        out.square += x * x;
      }
      out.error += error;
      out.worst = std::max(out.worst, error / static_cast<double>(to_.block_weights));
    }
    return out;
  }

  float Factor(uint64_t slice) const {
    if (job_.factors == nullptr) return 1;
    float value = 1;
    const uint64_t at = job_.factors->elements() == 1 ? 0 : slice;
    std::memcpy(&value, job_.factors->data + at * sizeof(float), sizeof value);
    return value;
  }

  bool HasSecondScale() const { return to_.type == Type::kNVFP4 && !ScaleName(report_.name).empty(); }

  // Of a slice that becomes NVFP4 and whose scale has a place; 1 for all else.
  float SecondScale(uint64_t slice) const {
    if (!HasSecondScale()) return 1;
    const size_t columns = job_.columns(), row_bytes = columns / from_.block_weights * from_.block_bytes;
    const std::byte* const source = job_.info->data + slice * job_.rows() * row_bytes;
    std::vector<float> row(columns);
    float largest = 0;
    for (uint64_t r = 0; r < job_.rows(); ++r) {
      from_.decode(source + r * row_bytes, row.data(), columns);
      for (const float x : row) largest = std::max(largest, std::isfinite(x) ? std::fabs(x) : 0.0f);
    }
    MappedFile::Release({source, static_cast<size_t>(job_.rows()) * row_bytes});
    return quant::NVFP4::TensorScale(largest * std::fabs(Factor(slice)));
  }

  // Of a slice's columns, with mean 1; empty: all the same.
  std::vector<float> ImportanceOf(uint64_t slice) const {
    if (job_.importance == nullptr) return {};
    const Importance& all = *job_.importance;
    const uint64_t m = all.matrices == 1 ? 0 : slice;
    if (!(all.counts[static_cast<size_t>(m)] > 0)) return {};
    const float* const mean = all.mean.data() + m * all.columns;
    double sum = 0;
    for (uint64_t c = 0; c < all.columns; ++c) sum += static_cast<double>(mean[c]);
    if (!(sum > 0)) return {};
    std::vector<float> out(static_cast<size_t>(all.columns));
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = static_cast<float>(mean[c] / sum * static_cast<double>(all.columns));
    return out;
  }

  size_t FirstBad(const float* row, size_t columns) const {
    const bool alone = to_.type == Type::kNVFP4 && !HasSecondScale();
    const float limit = alone ? quant::NVFP4::kTooLarge : quant::TooLarge(to_.type);
    for (size_t i = 0; i < columns; ++i)
      if (!(std::fabs(row[i]) < limit)) return i;
    return columns;
  }

  Status Refuse(uint64_t slice, uint64_t row, uint64_t column, float value) const {
    return {
        Code::kBadFile,
        fmt::format(
            "{}: {}: slice {}, row {}, column {} is {}, which {} can not hold (the tensor is at file offset "
            "{:#x})",
            Printable(file_.paths()[static_cast<size_t>(job_.info->file)]), Printable(job_.info->name), slice,
            row, column, value, to_.name, job_.info->offset)};
  }

  const gguf::File& file_;
  const Job job_;
  QuantizedTensor& report_;
  const quant::Format &from_, &to_;
  ThreadPool& threads_;
  const bool dry_;
  Sums sums_;
};

// What the recipe comes to for one file.
class Plan {
 public:
  Plan(const gguf::File& file, const HParams& hp, const Recipe& recipe, const QuantizeOptions& options)
      : file_(file), hp_(hp), known_(TensorsByName(hp)), recipe_(recipe), use_(recipe), options_(options) {}

  Status Make(QuantizeReport& report) {
    for (const gguf::TensorInfo& info : file_.tensors()) {
      const gguf::TensorInfo* const matrix = MatrixOf(info);
      if (matrix == nullptr) continue;
      const auto [there, fresh] = factors_.emplace(matrix, &info);
      if (!fresh)
        return {Code::kBadFile, fmt::format("{}: {} and {} are both scales of {}; which holds can't be known",
                                            Printable(file_.paths().front()), Printable(there->second->name),
                                            Printable(info.name), Printable(matrix->name))};
    }
    // Matrices first: the second scales of one that gets another type go.
    std::vector<QuantizedTensor> rows(file_.tensors().size());
    std::vector<Job> jobs(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      jobs[i].info = &file_.tensors()[i];
      if (Status s = Decide(*jobs[i].info, rows[i], jobs[i]); !s.ok()) return s;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const gguf::TensorInfo* const matrix = MatrixOf(*jobs[i].info);
      if (matrix != nullptr && !rows[static_cast<size_t>(matrix - file_.tensors().data())].kept) continue;
      jobs[i].report = report.tensors.size();
      report.tensors.push_back(std::move(rows[i]));
      jobs_.push_back(jobs[i]);
    }
    Notes(report);
    return {};
  }

  const std::vector<Job>& jobs() const { return jobs_; }

 private:
  const gguf::TensorInfo* MatrixOf(const gguf::TensorInfo& info) const {
    if (!info.name.ends_with(kScale)) return nullptr;
    const std::string stem = info.name.substr(0, info.name.size() - kScale.size());
    const std::string name = stem.ends_with(kWeight) ? stem : stem + std::string(kWeight);
    return file_.FindTensor(name);
  }

  Status Decide(const gguf::TensorInfo& info, QuantizedTensor& row, Job& job) {
    const auto where = [&] {
      return fmt::format("{}: {}", Printable(file_.paths().front()), Printable(info.name));
    };
    const auto found = known_.find(info.name);
    const bool known = found != known_.end();
    const std::string name = known ? found->second.Name() : info.name;
    row.name = info.name;
    row.ne.assign(info.ne.begin(), info.ne.begin() + std::clamp(info.dims, 1, 4));
    row.from = static_cast<Type>(info.type);
    row.bytes_before = row.bytes = info.bytes;
    const bool vector = known ? found->second.kind->vector != nullptr : info.ne[0] == info.elements();
    const RecipeSubject subject{
        name,   known ? found->second.kind->role : Role::kOther, known && found->second.block == hp_.layers,
        vector, vector ? info.elements() : info.ne[0],           row.from};
    use_.Add(subject);
    const bool second_scale = MatrixOf(info) != nullptr;
    row.wanted = second_scale ? row.from : recipe_.Wanted(subject);
    row.to = second_scale ? row.from : recipe_.TypeFor(subject);
    row.kept = row.to == row.from;
    if (row.kept) return {};
    const quant::Format *const from = quant::Find(row.from), *const to = quant::Find(row.to);
    if (from == nullptr || !from->runnable()) {
      return {
          Code::kUnsupported,
          fmt::format(
              "{}: its type, {}, can not be decoded, so it can not become {}; 'keep' in a recipe leaves it",
              where(), from ? std::string(from->name) : fmt::format("number {}", info.type),
              quant::Name(row.to))};
    }
    if (to->encode == nullptr) {
      return {Code::kUnsupported, fmt::format("{}: glint can not make {}; it makes {}", where(), to->name,
                                              quant::EncodableNames())};
    }
    if (info.ne[0] % from->block_weights != 0 || info.ne[0] % to->block_weights != 0)
      return {Code::kBadFile,
              fmt::format("{}: rows of {} are no whole number of blocks", where(), info.ne[0])};
    row.bytes = info.elements() / to->block_weights * to->block_bytes;
    const auto factors = factors_.find(&info);
    if (factors != factors_.end()) {
      job.factors = factors->second;
      const uint64_t count = job.factors->elements();
      if (job.factors->type != static_cast<uint32_t>(Type::kF32) || (count != 1 && count != job.slices()))
        return {Code::kBadFile,
                fmt::format("{}: the scales beside it are {} of type {}, wanted f32, one or {}", where(),
                            count, quant::Name(static_cast<Type>(job.factors->type)), job.slices())};
    }
    return FindImportance(info, name, row, job);
  }

  Status FindImportance(const gguf::TensorInfo& info, const std::string& name, QuantizedTensor& row,
                        Job& job) {
    if (options_.importance == nullptr || !quant::Find(row.to)->integer()) return {};
    const Importance* importance = options_.importance->Find(info.name);
    if (importance == nullptr) importance = options_.importance->Find(name);
    if (importance == nullptr) {
      unmeasured_.push_back(info.name);
      return {};
    }
    if (importance->columns != info.ne[0] ||
        (importance->matrices != 1 && importance->matrices != job.slices())) {
      return {Code::kBadInput,
              fmt::format("{}: {}: importance of {} columns and {} matrices; the tensor has {} and {}: it "
                          "was measured on "
                          "another model",
                          Printable(options_.importance_path), Printable(info.name), importance->columns,
                          importance->matrices, info.ne[0], job.slices())};
    }
    job.importance = importance;
    row.weighed = true;
    row.unhit = static_cast<uint64_t>(std::count_if(importance->counts.begin(), importance->counts.end(),
                                                    [](float count) { return !(count > 0); }));
    return {};
  }

  void Notes(QuantizeReport& report) const {
    report.notes = use_.Idle();
    for (const QuantizedTensor& row : report.tensors) {
      if (row.name.size() <= gguf::kUsualTensorNameBytes) continue;
      report.notes.push_back(fmt::format("{}: a name of {} bytes; many programs read {} at most",
                                         Printable(row.name), row.name.size(), gguf::kUsualTensorNameBytes));
      break;
    }
    uint64_t blind = 0, unhit = 0, fallbacks = 0;
    for (const QuantizedTensor& row : report.tensors) {
      if (row.kept) continue;
      if (!row.weighed && BitsAWeight(*quant::Find(row.to)) < kFewBits) ++blind;
      unhit += row.unhit;
      if (row.to != row.wanted) ++fallbacks;
    }
    if (fallbacks > 0)
      report.notes.push_back(fmt::format(
          "{} tensors whose rows are no whole number of blocks get another type than asked for", fallbacks));
    if (blind > 0)
      report.notes.push_back(
          fmt::format("{} tensors go to types of less than {} bits {}, and lose much by it", blind, kFewBits,
                      options_.importance == nullptr ? "without an importance matrix (--imatrix)"
                                                     : "that the importance matrix says nothing of"));
    if (!unmeasured_.empty())
      report.notes.push_back(fmt::format("the importance matrix says nothing of {} tensors, {} first",
                                         unmeasured_.size(), Printable(unmeasured_.front())));
    if (unhit > 0)
      report.notes.push_back(fmt::format(
          "{} experts were never hit when importance was measured: their columns weigh the same", unhit));
  }

  const gguf::File& file_;
  const HParams& hp_;
  const std::unordered_map<std::string, Tensor> known_;
  const Recipe& recipe_;
  Recipe::Use use_;
  const QuantizeOptions& options_;
  std::vector<Job> jobs_;
  std::map<const gguf::TensorInfo*, const gguf::TensorInfo*> factors_;  // by matrix
  std::vector<std::string> unmeasured_;
};

// The type that most bytes are of.
Type MainType(const QuantizeReport& report) {
  std::map<Type, uint64_t> bytes;
  for (const QuantizedTensor& row : report.tensors) bytes[row.to] += row.bytes;
  return std::max_element(bytes.begin(), bytes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void SetKeys(const gguf::File& file, const QuantizeReport& report, const QuantizeOptions& options,
             gguf::Writer& writer) {
  gguf::CopyKeys(file, writer);
  if (std::all_of(report.tensors.begin(), report.tensors.end(), [](const auto& row) { return row.kept; }))
    return;
  writer.SetU32("general.file_type", FileType(MainType(report)));
  writer.SetU32("general.quantization_version", 2);
  if (options.importance == nullptr) return;
  const size_t slash = options.importance_path.rfind('/');
  writer.SetString("quantize.imatrix.file",
                   options.importance_path.substr(slash == std::string::npos ? 0 : slash + 1));
  if (!options.importance->datasets.empty())
    writer.SetString("quantize.imatrix.dataset", options.importance->datasets.front());
  writer.SetI32("quantize.imatrix.entries_count", static_cast<int32_t>(options.importance->tensors().size()));
  writer.SetI32("quantize.imatrix.chunks_count", static_cast<int32_t>(options.importance->chunks));
}

std::string Identity(const gguf::File& file, const QuantizeReport& report, const QuantizeOptions& options) {
  Hasher hasher;
  hasher.AddText("quantize 2");  // counted up when an encoder's bytes change
  hasher.AddText(gguf::Fingerprint(file));
  for (const QuantizedTensor& row : report.tensors) hasher.AddNumber(static_cast<uint64_t>(row.to));
  if (options.importance != nullptr) {
    for (const auto& [name, importance] : options.importance->tensors()) {
      hasher.AddText(name);
      hasher.AddBytes(std::as_bytes(std::span(importance.mean)));
      hasher.AddBytes(std::as_bytes(std::span(importance.counts)));
    }
  }
  return Hex(hasher.Value());
}

}  // namespace

Result<QuantizeReport> Quantize(const std::string& input, const std::string& output, const Recipe& recipe,
                                const QuantizeOptions& options) {
  const auto file = gguf::File::Open(input, BlockSizeOf);
  if (!file.ok()) return file.status();
  const auto read = ReadHParams(*file);
  if (!read.ok()) return read.status();
  QuantizeReport report;
  Plan plan(*file, read->hparams, recipe, options);
  if (Status s = plan.Make(report); !s.ok()) return s;

  gguf::Writer writer;
  SetKeys(*file, report, options, writer);
  ThreadPool threads(options.threads > 0 ? options.threads : AvailableCores());
  std::vector<std::shared_ptr<Encoding>> written;  // by the writer's number; null for what is not encoded
  for (const Job& job : plan.jobs()) {
    QuantizedTensor& row = report.tensors[job.report];
    if (row.kept) {
      if (Status s = gguf::CopyTensor(*file, *job.info, writer); !s.ok()) return s;
      written.push_back(nullptr);
      continue;
    }
    const auto encoding = std::make_shared<Encoding>(*file, job, row, threads, options.dry);
    writer.AddLongTensor(
        row.name, static_cast<uint32_t>(row.to), row.ne, row.bytes,
        [encoding](uint64_t from, const gguf::Writer::Sink& sink) { return (*encoding)(from, sink); });
    written.push_back(encoding);
    const std::string scales = ScaleName(row.name);
    if (row.to != Type::kNVFP4 || scales.empty()) continue;
    writer.AddTensor(scales, static_cast<uint32_t>(Type::kF32), {job.slices()}, job.slices() * sizeof(float),
                     [encoding](const gguf::Writer::Sink& sink) { return encoding->GiveSecondScales(sink); });
    written.push_back(nullptr);
  }
  std::vector<std::string> inputs = file->paths();
  inputs.insert(inputs.end(), options.inputs.begin(), options.inputs.end());
  if (!options.importance_path.empty()) inputs.push_back(options.importance_path);
  auto made = writer.WriteSet(
      output,
      {.shard_bytes = options.shard_bytes,
       .shard_tensors = 0,
       .piece_bytes = options.piece_bytes,
       .identity = Identity(*file, report, options),
       .restart = options.restart,
       .replace = options.replace,
       .dry = options.dry,
       .inputs = inputs,
       .others = options.others,
       .progress = options.progress,
       .remember = [&](size_t i) { return written[i] != nullptr ? written[i]->Remember() : std::string(); },
       .recall =
           [&](size_t i, const std::string& line) {
             if (written[i] != nullptr) written[i]->Recall(line);
           }});
  if (!made.ok()) return made.status();
  report.written_tensors = written.size();
  report.paths = std::move(made->paths);
  report.bytes = made->bytes;
  report.taken_over_bytes = made->taken_over_bytes;
  return report;
}

}  // namespace glint::model
