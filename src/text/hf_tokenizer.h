// The tokenizer and chat template of a Hugging Face checkpoint directory.
#pragma once
#include <string>

#include "glint/status.h"
#include "text/tokenizer_data.h"

namespace glint::text {

// Reads tokenizer.json, and, where they are there, tokenizer_config.json (pad, bos and eos by their spelling) and generation_config.json (ids: one
// or a list; these win). Refuses what glint's tokenizer would not encode as the file means: another model than
// byte-level BPE, another pre-tokenizer than GLM's, a normaliser, added tokens with rules about their neighbours.
// `vocab` is the number of rows of the embedding, 0 if it is not known: ids without a token up to there are padding.
//
// Errors: kNotFound, there is no tokenizer.json; kBadFile and kUnsupported name the file and what is wrong with it.
Result<TokenizerData> ReadHfTokenizer(const std::string& directory, int64_t vocab = 0);

// The Jinja source: chat_template.jinja, or chat_template of tokenizer_config.json (a text, or a list of named ones, of
// which "default" counts). Empty if there is none.
Result<std::string> ReadHfChatTemplate(const std::string& directory);

}  // namespace glint::text
