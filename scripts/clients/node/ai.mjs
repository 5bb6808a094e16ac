// Vercel's ai with @ai-sdk/openai-compatible, unmodified.

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";
import { MODEL, QUESTION, TOO_LONG, freesTheWorker, main, refused } from "./harness.mjs";

const SETTINGS = { prompt: QUESTION, temperature: 0, maxOutputTokens: 16, maxRetries: 0 };
const SCHEMA = z.object({ name: z.string() });

function connect(url) {
  return createOpenAICompatible({
    name: "pdserve",
    baseURL: `${url}/v1`,
    apiKey: "none",
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
}

function errorOf(why) {
  return JSON.parse(why.responseBody).error;
}

main(connect, {
  async generate_text(provider) {
    const answer = await generateText({ ...SETTINGS, model: provider(MODEL) });
    assert(answer.usage.outputTokens > 0);
    return answer.text;
  },

  async stream_text_with_usage(provider) {
    const answer = streamText({ ...SETTINGS, model: provider(MODEL) });
    let said = "";
    for await (const part of answer.textStream) said += part;
    assert((await answer.usage).outputTokens > 0);
    assert.equal(said, (await generateText({ ...SETTINGS, model: provider(MODEL) })).text);
    return said;
  },

  async seed_and_stop(provider) {
    const warm = { ...SETTINGS, model: provider(MODEL), temperature: 1.1, seed: 7 };
    const first = await generateText(warm);
    assert.equal((await generateText(warm)).text, first.text);
    assert.notEqual((await generateText({ ...warm, seed: 8 })).text, first.text);
    const whole = await generateText({ ...SETTINGS, model: provider(MODEL) });
    const short = await generateText({ ...SETTINGS, model: provider(MODEL), stopSequences: ["France"] });
    assert.equal(short.text, whole.text.split("France")[0]);
    assert.notEqual(short.text, whole.text);
    return first.text;
  },

  async completions(provider) {
    return (await generateText({ ...SETTINGS, model: provider.completionModel(MODEL) })).text;
  },

  async wrong_model(provider) {
    const why = await refused(APICallError, () => generateText({ ...SETTINGS, model: provider("other") }));
    assert.equal(why.statusCode, 404);
    assert.equal(errorOf(why).code, "model_not_found");
  },

  async too_long_a_prompt(provider) {
    const ask = { ...SETTINGS, prompt: TOO_LONG, model: provider(MODEL) };
    const why = await refused(APICallError, () => generateText(ask));
    assert.equal(why.statusCode, 400);
    assert.equal(errorOf(why).code, "context_length_exceeded");
  },

  async an_object_of_a_schema(provider) {
    const model = provider(MODEL);
    const { object } = await generateObject({ ...SETTINGS, maxOutputTokens: 200, model, schema: SCHEMA });
    return object.name;
  },

  async a_required_tool(provider) {
    const now = tool({ description: "The time", inputSchema: SCHEMA, execute: async () => "noon" });
    const ask = { ...SETTINGS, maxOutputTokens: 200, model: provider(MODEL), tools: { now }, toolChoice: "required" };
    const [call] = (await generateText(ask)).toolCalls;
    assert.equal(call.toolName, "now");
    const streamed = streamText(ask);
    const [same] = await streamed.toolCalls;
    assert.deepEqual(same.input, call.input);
    return call.input.name;
  },

  async a_stream_that_is_left(provider) {
    const abort = new AbortController();
    const answer = streamText({
      ...SETTINGS,
      model: provider(MODEL),
      maxOutputTokens: 4000,
      providerOptions: { pdserve: { ignore_eos: true } },
      abortSignal: abort.signal,
    });
    await answer.textStream[Symbol.asyncIterator]().next();
    await freesTheWorker(() => abort.abort());
  },
});
