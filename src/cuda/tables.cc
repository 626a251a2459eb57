#include "cuda/tables.h"

#include <array>
#include <cstddef>
#include <vector>

#include "cuda/product_args.h"
#include "cuda/status.h"
#include "quant/iq_grids.h"

namespace glint::cuda {
namespace {

struct Table {
  quant::Type type;
  const void* data;
  size_t bytes;
};

template <size_t kPoints, size_t kColumns>
Table Of(quant::Type type, const quant::Grid<kPoints, kColumns>& grid) {
  return {type, grid.point, sizeof(grid.point)};
}

// In the order in which they lie in device memory; sizes are multiples of 256.
std::array<Table, 7> Tables() {
  using quant::Type;
  return {Of(Type::kIQ2_XXS, quant::kIq2XxsGrid), Of(Type::kIQ2_XS, quant::kIq2XsGrid),
          Of(Type::kIQ2_S, quant::kIq2SGrid),     Of(Type::kIQ3_XXS, quant::kIq3XxsGrid),
          Of(Type::kIQ3_S, quant::kIq3SGrid),     Of(Type::kIQ1_S, quant::kIq1Grid),
          Of(Type::kIQ1_M, quant::kIq1Grid)};
}

uint64_t SpreadBytes(quant::Type type) { return static_cast<uint64_t>(FindLaunches(type)->table_bytes); }

}  // namespace

Result<DeviceTables> DeviceTables::Load(const Context& context) {
  uint64_t bytes = 0;
  for (const Table& table : Tables()) bytes += table.bytes + SpreadBytes(table.type);
  auto memory = DeviceMemory::Take(context, bytes, "the grids of the IQ formats");
  if (!memory.ok()) return memory.status();
  DeviceTables tables;
  tables.memory_ = std::move(*memory);
  uint64_t at = 0;
  for (const Table& table : Tables()) {
    Status status = Check(cudaMemcpyAsync(tables.memory_.data() + at, table.data, table.bytes,
                                          cudaMemcpyHostToDevice, context.stream()),
                          "copying the grids of the IQ formats");
    if (!status.ok()) return status;
    at += table.bytes;
  }
  for (const Table& table : Tables()) {
    FindLaunches(table.type)
        ->spread(tables.For(table.type), reinterpret_cast<uint8_t*>(tables.memory_.data()) + at,
                 context.stream());
    if (Status status = Check(cudaGetLastError(), "making the tables of the IQ formats"); !status.ok())
      return status;
    at += SpreadBytes(table.type);
  }
  if (Status status = context.Wait(); !status.ok()) return status;
  return tables;
}

const uint8_t* DeviceTables::For(quant::Type type) const {
  uint64_t at = 0;
  for (const Table& table : Tables()) {
    if (table.type == type) return reinterpret_cast<const uint8_t*>(memory_.data()) + at;
    at += table.bytes;
  }
  return nullptr;
}

const uint8_t* DeviceTables::Spread(quant::Type type) const {
  uint64_t at = 0;
  for (const Table& table : Tables()) at += table.bytes;
  for (const Table& table : Tables()) {
    if (table.type == type) return reinterpret_cast<const uint8_t*>(memory_.data()) + at;
    at += SpreadBytes(table.type);
  }
  return nullptr;
}

}  // namespace glint::cuda
