#include "model/glm_flash/recipe.h"

namespace glint::model {

// Sources: spec/gguf.md section 5 for what the published files hold.
const std::vector<ShippedRecipe>& ShippedRecipes() {
  static const std::vector<ShippedRecipe> recipes{
      {"ds4", "as DS4's Q4_K file: experts Q4_K, MLA and dense FFNs Q8_0, the rest BF16",
       R"(# As the DS4 Q4_K file: recurrent layers, indexer, embedding and head stay BF16.
*.indexer_compressor_ape = bf16
vectors = keep
*.ffn_gate_inp = keep
role:experts = q4_k
role:dsa = q8_0
role:dense = q8_0
role:shared = q8_0
* = bf16
)"},
      {"q8_0-q4_k", "everything Q8_0, experts Q4_K",
       R"(# Small loss anywhere but in the experts, which are nearly all of the bytes.
vectors = keep
*.ffn_gate_inp = keep
*.indexer.proj = keep
role:experts = q4_k
* = q8_0
)"},
      {"q8_0-iq3_xxs", "everything Q8_0, experts IQ3_XXS: fits one card of 141 GB",
       R"(# Experts of 3.06 bits; quantize them with an importance matrix.
vectors = keep
*.ffn_gate_inp = keep
*.indexer.proj = keep
role:experts = iq3_xxs
* = q8_0
)"},
      {"q4_k", "everything Q4_K, Q5_0 where rows are short",
       R"(# The smallest that needs no importance matrix.
vectors = keep
*.ffn_gate_inp = keep
*.indexer.proj = keep
* = q4_k
fallback = q5_0, f16
)"},
      {"q4_k_m", "Q4_K with Q6_K where it helps most, as Q4_K_M files",
       R"(# As a Q4_K_M file: attention values and expert outputs of every third layer and of the first and last eighth in Q6_K; the
# recurrent layers' gates, hyper-connections and the head are small or touchy.
vectors = keep
*.ffn_gate_inp = keep
*.indexer.proj = keep
output = q6_k
blk.{0-4,7,10,13,16,19,22,25,28,31,34,37,40-45}.{attn_v,attn_v_b,ffn_down,ffn_down_exps,ffn_down_shexp} = q6_k
*.{ssm_f_a,ssm_f_b,ssm_g_a,ssm_g_b,ssm_beta} = q8_0
role:hc = q8_0
role:indexer = q8_0
* = q4_k
)"},
      {"ud-iq3_xxs", "the mixture of unsloth's UD-IQ3_XXS file: experts IQ2_S and IQ3_S",
       R"(# Experts of 2.56 and 3.44 bits; quantize them with an importance matrix. Block numbers are the released model's.
vectors = keep
*.ffn_gate_inp = keep
*.indexer.proj = keep
token_embd = q6_k
output = q6_k
role:mtp & *.ffn_{gate,up}_exps = q2_k
role:mtp & *.ffn_down_exps = q3_k
blk.11.ffn_{gate,up}_exps = iq3_s
*.ffn_{gate,up}_exps = iq2_s
blk.{11,12,44}.ffn_down_exps = iq4_xs
*.ffn_down_exps = iq3_s
role:indexer = q8_0
role:mtp & *.attn_{output,q_a} = q6_k
role:mtp & role:shared = q6_k
blk.11.attn_{q,k,v,output,q_a} = q8_0
blk.11.ffn_{gate,up,down}* = q8_0
*.attn_{q,k,v,output,q_a} = q6_k
role:dense = q6_k
role:shared = q6_k
* = q8_0
)"},
  };
  return recipes;
}

}  // namespace glint::model
