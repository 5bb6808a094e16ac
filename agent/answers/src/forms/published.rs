//! The forms that chat templates of published models are written for: `make templates`.

use crate::{ReasoningForm, ToolForm};
use serde_json::Value;

/// Of the models whose forms are here; the others' answers are text.
const FORMS: &[(&str, Option<ReasoningForm>, Option<ToolForm>)] = {
    use ReasoningForm as R;
    use ToolForm as T;
    const THINKS: Option<R> = Some(R::Qwen3);
    &[
        ("Bielik-11B-v3.0-Instruct", THINKS, Some(T::Hermes)),
        ("GLM-4.6", THINKS, Some(T::Glm45)),
        ("GLM-4.7-Flash", THINKS, Some(T::Glm45)),
        ("HuggingFaceTB-SmolLM3-3B", THINKS, None),
        ("Kimi-K2-Instruct", None, Some(T::KimiK2)),
        ("Kimi-K2-Thinking", THINKS, Some(T::KimiK2)),
        ("LFM2.5-8B-A1B", THINKS, None),
        ("LFM2.5-Instruct", THINKS, None),
        ("MiMo-VL", None, Some(T::Hermes)),
        ("MiniMax-M2", THINKS, None),
        (
            "Mistral-Small-3.2-24B-Instruct-2506",
            None,
            Some(T::Mistral),
        ),
        (
            "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            THINKS,
            Some(T::Qwen3Coder),
        ),
        ("NVIDIA-Nemotron-Nano-v2", THINKS, None),
        (
            "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
            None,
            Some(T::Hermes),
        ),
        (
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
            None,
            Some(T::Hermes),
        ),
        ("Qwen-QwQ-32B", THINKS, Some(T::Hermes)),
        ("Qwen-Qwen2.5-7B-Instruct", None, Some(T::Hermes)),
        ("Qwen-Qwen3-0.6B", THINKS, Some(T::Hermes)),
        ("Qwen3-Coder", None, Some(T::Qwen3Coder)),
        ("Qwen3.5-4B", THINKS, Some(T::Qwen3Coder)),
        ("Reka-Edge", THINKS, Some(T::Hermes)),
        ("Spark2.5", THINKS, Some(T::Glm45)),
        ("StepFun3.5-Flash", THINKS, Some(T::Qwen3Coder)),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", THINKS, None),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", THINKS, None),
        ("deepseek-ai-DeepSeek-V3.1", THINKS, None),
        ("deepseek-ai-DeepSeek-V3.2", THINKS, None),
        ("deepseek-ai-DeepSeek-V4-Flash-0731", THINKS, None),
        ("deepseek-ai-DeepSeek-V4", THINKS, None),
        ("ibm-granite-granite-3.3-2B-Instruct", THINKS, None),
        ("ibm-granite-granite-4.0", None, Some(T::Hermes)),
        ("ibm-granite-granite-4.1", None, Some(T::Hermes)),
        ("inclusionai-ling-3.0-flash", THINKS, Some(T::Glm45)),
        ("llama-cpp-deepseek-r1", THINKS, Some(T::DeepseekV3)),
        ("llama-cpp-rwkv-world", THINKS, None),
        ("meta-llama-Llama-3.1-8B-Instruct", None, Some(T::Llama3)),
        ("meta-llama-Llama-3.2-3B-Instruct", None, Some(T::Llama3)),
        ("meta-llama-Llama-3.3-70B-Instruct", None, Some(T::Llama3)),
        (
            "mistralai-Ministral-3-14B-Reasoning-2512",
            Some(R::Mistral),
            Some(T::Mistral),
        ),
        (
            "mistralai-Mistral-Nemo-Instruct-2407",
            None,
            Some(T::Mistral),
        ),
        ("moonshotai-Kimi-K2", None, Some(T::KimiK2)),
        ("openai-gpt-oss-120b", Some(R::Harmony), Some(T::Harmony)),
        ("openbmb-MiniCPM5-1B", THINKS, None),
        ("poolside-Laguna-S-2.1", THINKS, Some(T::Glm45)),
        ("poolside-Laguna-XS-2.1", THINKS, Some(T::Glm45)),
        ("poolside-Laguna-XS.2", THINKS, Some(T::Glm45)),
        (
            "unsloth-mistral-Devstral-Small-2507",
            None,
            Some(T::Mistral),
        ),
    ]
};

#[test]
fn published_templates_say_their_forms() {
    let Some(file) = std::env::var_os("PDSERVE_TEMPLATES") else {
        return;
    };
    let published: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut found = Vec::new();
    for template in published.as_array().unwrap() {
        let name = template["name"].as_str().unwrap();
        let source = template["source"].as_str().unwrap();
        let reasoning = ReasoningForm::of_template(source);
        let tools = ToolForm::of_template(source).filter(|_| source.contains("tools"));
        if reasoning.is_some() || tools.is_some() {
            found.push((name, reasoning, tools));
        }
    }
    assert_eq!(found, FORMS);
    println!("{} templates have forms that are here", found.len());
}
