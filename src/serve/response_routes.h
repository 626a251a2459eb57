// The routes of OpenAI's responses, and the store behind them.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "serve/endpoints.h"
#include "serve/response_store.h"

namespace glint::serve {

// POST /v1/responses and /v1/responses/input_tokens; GET and DELETE of /v1/responses/{id}, its input_items, its cancel. `store` null:
// nothing is kept. `log` gets a line where a response could not be kept; from any thread.
void AddResponseRoutes(Endpoints& endpoints, std::shared_ptr<ResponseStore> store,
                       std::function<void(const std::string& line)> log = {});

}  // namespace glint::serve
