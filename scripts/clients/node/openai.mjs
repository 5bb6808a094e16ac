// npm's openai, unmodified.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { MESSAGES, MODEL, TOO_LONG, freesTheWorker, main, refused } from "./harness.mjs";

const SETTINGS = { model: MODEL, messages: MESSAGES, temperature: 0, max_tokens: 16 };

function chat(client, extra) {
  return client.chat.completions.create({ ...SETTINGS, ...extra });
}

const text = (answer) => answer.choices[0].message.content;

main((url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }), {
  async models(client) {
    const listed = (await client.models.list()).data;
    assert.deepEqual(listed.map((model) => model.id), [MODEL]);
    assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
    await refused(OpenAI.NotFoundError, () => client.models.retrieve("other"));
    return listed[0].max_model_len;
  },

  async chat(client) {
    const answer = await chat(client);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    return text(answer);
  },

  async stream_with_usage(client) {
    const stream = await chat(client, { stream: true, stream_options: { include_usage: true } });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert(chunks.at(-1).usage.completion_tokens > 0);
    const said = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    const helper = client.chat.completions.stream({ ...SETTINGS, stream: true });
    assert.equal(await helper.finalContent(), said);
    assert.equal(text(await chat(client)), said);
    return said;
  },

  async choices_logprobs_seed_and_stop(client) {
    const made = await chat(client, { n: 3, temperature: 1.2, seed: 5 });
    const texts = made.choices.map((choice) => choice.message.content);
    assert.equal(new Set(texts).size, 3);
    const scored = await chat(client, { logprobs: true, top_logprobs: 2 });
    const tokens = scored.choices[0].logprobs.content.map((token) => token.token);
    assert.equal(tokens.join(""), text(scored));
    const short = await chat(client, { stop: ["France"] });
    assert.equal(text(short), text(scored).split("France")[0]);
    assert.notEqual(text(short), text(scored));
    return texts;
  },

  async completions(client) {
    const prompt = ["The sea is", "The sky is"];
    const settings = { model: MODEL, prompt, temperature: 0, max_tokens: 8 };
    const answer = await client.completions.create({ ...settings, echo: true, logprobs: 1 });
    assert.equal(answer.choices.length, 2);
    for (const [index, choice] of answer.choices.entries()) {
      assert(choice.text.startsWith(prompt[index]));
      assert.equal(choice.logprobs.tokens.join(""), choice.text);
    }
    return answer.choices.map((choice) => choice.text);
  },

  async wrong_model(client) {
    const why = await refused(OpenAI.NotFoundError, () => chat(client, { model: "other" }));
    assert.equal(why.code, "model_not_found");
  },

  async too_long_a_prompt(client) {
    const messages = [{ role: "user", content: TOO_LONG }];
    for (const stream of [false, true]) {
      const why = await refused(OpenAI.BadRequestError, () => chat(client, { messages, stream }));
      assert.equal(why.code, "context_length_exceeded");
    }
  },

  async a_required_call(client) {
    const parameters = { type: "object", properties: { zone: { enum: ["UTC", "CET"] } }, required: ["zone"] };
    const tool = { type: "function", function: { name: "now", parameters } };
    const ask = { tools: [tool], tool_choice: "required", max_tokens: 200 };
    const [choice] = (await chat(client, ask)).choices;
    assert.equal(choice.finish_reason, "tool_calls");
    const { zone } = JSON.parse(choice.message.tool_calls[0].function.arguments);
    assert(["UTC", "CET"].includes(zone), zone);
    return zone;
  },

  async responses(client) {
    const ask = { model: MODEL, input: MESSAGES, temperature: 0, max_output_tokens: 16 };
    const answer = await client.responses.create(ask);
    assert.equal(answer.output_text, text(await chat(client)));
    const stream = client.responses.stream(ask);
    const parts = [];
    for await (const event of stream) if (event.type === "response.output_text.delta") parts.push(event.delta);
    assert.equal(parts.join(""), answer.output_text);
    assert.equal((await stream.finalResponse()).output_text, answer.output_text);
    const why = await refused(OpenAI.BadRequestError, () => client.responses.create({ ...ask, previous_response_id: "resp_1" }));
    assert.equal(why.param, "previous_response_id");
    return answer.output_text;
  },

  async a_stream_that_is_left(client) {
    const stream = await chat(client, { stream: true, max_tokens: 4000, ignore_eos: true });
    await stream[Symbol.asyncIterator]().next();
    await freesTheWorker(() => stream.controller.abort());
  },
});
