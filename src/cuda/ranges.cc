#include "cuda/ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace glint::cuda {
namespace {

// Null where no tool listens: then NVTX has nothing that could make one.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("glint");
  return domain;
}

}  // namespace

bool RangesAreSeen() { return Domain() != nullptr; }

void Range::Begin(const std::string& name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  nvtxDomainRangePushEx(Domain(), &attributes);
}

void Range::End() { nvtxDomainRangePop(Domain()); }

}  // namespace glint::cuda

#else

namespace glint::cuda {

bool RangesAreSeen() { return false; }
void Range::Begin(const std::string&) {}
void Range::End() {}

}  // namespace glint::cuda

#endif
