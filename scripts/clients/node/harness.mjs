// What both of npm's clients do: ask each server the same, and print a line for each check. As harness.py does.

import assert from "node:assert/strict";

export const MODEL = "smollm2";
export const QUESTION = "Name the capital of France, then say why the sky is blue.";
export const MESSAGES = [{ role: "user", content: QUESTION }];
// More tokens than the model's context of 8192 has places for.
export const TOO_LONG = "word ".repeat(9000);

/** The error of this kind that the call must end in. */
export async function refused(kind, call) {
  let answer;
  try {
    answer = await call();
  } catch (why) {
    assert(why instanceof kind, `${why.name} instead of ${kind.name}: ${why.message}`);
    return why;
  }
  assert.fail(`served instead of ${kind.name}: ${JSON.stringify(answer).slice(0, 200)}`);
}

async function running() {
  let held = 0;
  for (const worker of process.env.PDSERVE_WORKERS.split(" ")) {
    const text = await (await fetch(`${worker}/metrics`)).text();
    const count = text.match(/^pdserve_num_running_reqs (.+)$/m);
    assert(count, `${worker}/metrics has no pdserve_num_running_reqs`);
    held += Number(count[1]);
  }
  return held;
}

async function within(seconds, holds, what) {
  const end = Date.now() + seconds * 1000;
  while (!(await holds())) {
    assert(Date.now() < end, `${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A stream was begun; once it is stopped, no worker computes any more. */
export async function freesTheWorker(stop) {
  await within(5, async () => (await running()) > 0, "a worker runs the stream");
  await stop();
  await within(5, async () => (await running()) === 0, "the workers are free after the stream was left");
}

/** No text of these checks is empty on a server that works. */
function hasText(answer) {
  const parts = Array.isArray(answer) ? answer : [answer];
  return parts.length > 0 && !parts.includes("");
}

export async function main(connect, checks) {
  const urls = process.argv.slice(2);
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    let url;
    try {
      const answers = [];
      for (url of urls) answers.push((await check(connect(url))) ?? null);
      for (const answer of answers) assert.deepEqual(answer, answers[0], "answers differ");
      assert(hasText(answers[0]), `an empty answer: ${JSON.stringify(answers[0])}`);
      console.log(`ok    ${name.padEnd(30)} ${JSON.stringify(answers[0]).slice(0, 90)}`);
    } catch (why) {
      failed += 1;
      console.log(`FAIL  ${name.padEnd(30)} ${url} ${why.stack.slice(0, 2000).replaceAll("\n", " | ")}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
