// What scenario.py is for Python: the tools, their ground truth, and the notes for meta.json.
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';

export const PROMPT = 'Check the weather in Paris, the status page and the orders table.';
export const MAIN = [
  'get_weather x1 (ok)',
  'fetch_page x6 identical args (all fail)',
  'run_query x6 varied args (all fail)',
  'get_weather x2 in parallel in one LLM turn (ok)',
];

function noteCall(name, args, failed) {
  appendFileSync(process.env.CAPTURE_CALLS, JSON.stringify({ name, args, failed }) + '\n');
}

export async function getWeather({ city }) {
  noteCall('get_weather', { city }, false);
  return { city, temp_c: 21 };
}

export async function fetchPage({ url }) {
  noteCall('fetch_page', { url }, true);
  return fail(`HTTP 503 from ${url}`);
}

export async function runQuery({ sql }) {
  noteCall('run_query', { sql }, true);
  return fail(`relation "ordres" does not exist: ${sql}`);
}

function fail(message) {
  if (process.env.TOOLS_RETURN_ERRORS) return { error: message };
  throw new Error(message);
}

export function writeNotes(packages, more) {
  const versions = { node: process.version };
  for (const name of packages) {
    const manifest = new URL(`../node_modules/${name}/package.json`, import.meta.url);
    versions[name] = JSON.parse(readFileSync(manifest, 'utf8')).version;
  }
  writeFileSync(process.env.CAPTURE_NOTES, JSON.stringify({ versions, scenario: MAIN, ...more }));
}
