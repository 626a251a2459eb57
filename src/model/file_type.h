// general.file_type: how other programs number whole files by their main weight type.
#pragma once
#include <cstdint>

#include "quant/format.h"

namespace glint::model {

uint32_t FileType(quant::Type type);

}  // namespace glint::model
