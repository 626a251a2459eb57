// The tokenizer and chat template in the metadata of a GGUF file (spec/gguf.md section 8).
#pragma once
#include <string>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "glint/status.h"
#include "text/tokenizer_data.h"

namespace glint::text {

// Reads tokenizer.ggml.{model, pre, tokens, token_type, merges, eos_token_id, eot_token_id, eom_token_id, bos_token_id,
// padding_token_id, ignore_merges}. The last is glint's own key: absent, as in everybody else's files, it is true,
// which is what `pre` glm4 and glm5 mean. Generation stops on eos, eot and eom.
//
// Errors: kNotFound, the file has no tokenizer; kUnsupported, a kind of tokenizer that glint has not; kBadFile names
// the key and what is wrong.
Result<TokenizerData> ReadGgufTokenizer(const gguf::File& file);
// tokenizer.chat_template; empty if there is none.
Result<std::string> ReadGgufChatTemplate(const gguf::File& file);

// Sets the keys from which ReadGgufTokenizer gives the same data again, and the template if it is not empty. kUnsupported
// for more than three stop ids: the format has no key for a fourth.
Status WriteGgufTokenizer(const TokenizerData& data, const std::string& chat_template, gguf::Writer& writer);

}  // namespace glint::text
