// A vocabulary with all bytes, a few merges and the control tokens of the templates.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace glint::fuzz {

inline text::TokenizerData SmallTokenizerData() {
  text::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(text::ToAlphabet(std::string(1, static_cast<char>(byte))));
  for (const auto& [left, right] :
       {std::pair{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"a", "n"}, {"a", "a"}, {"aa", "aa"}}) {
    data.merges.emplace_back(left, right);
    data.tokens.push_back(std::string(left) + right);
  }
  data.kinds.assign(data.tokens.size(), text::TokenKind::kNormal);
  for (const char* added :
       {"[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"}) {
    data.tokens.emplace_back(added);
    data.kinds.push_back(text::TokenKind::kControl);
  }
  for (const char* added : {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>"}) {
    data.tokens.emplace_back(added);
    data.kinds.push_back(text::TokenKind::kUserDefined);
  }
  return data;
}

inline const text::Tokenizer& SmallTokenizer() {
  static const auto tokenizer = text::Tokenizer::Create(SmallTokenizerData());
  if (!tokenizer.ok()) std::abort();
  return **tokenizer;
}

}  // namespace glint::fuzz
