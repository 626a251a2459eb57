// Sessions to bytes and back.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "glint/session.h"

namespace glint::engine {

// Session::Load without the file: `bytes` as one would hold them, `name` for messages. Memory is claimed once the header agrees with
// itself, with the file's size and with the model.
Result<Session> LoadSession(const Model& model, std::span<const std::byte> bytes, const std::string& name,
                            const SessionOptions& options, std::string* attachment,
                            const std::function<bool(uint64_t, uint64_t)>& progress);

}  // namespace glint::engine
