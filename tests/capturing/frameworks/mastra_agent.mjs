// Mastra agent with Mastra's OpenTelemetry exporter.
// npm: @mastra/core @mastra/observability @mastra/otel-exporter @ai-sdk/openai-compatible zod (node 22)
//   @opentelemetry/exporter-trace-otlp-proto @opentelemetry/exporter-logs-otlp-proto. usage: mastra_agent.mjs
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Mastra } from '@mastra/core';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { Observability } from '@mastra/observability';
import { OtelExporter } from '@mastra/otel-exporter';
import { z } from 'zod';
import { fetchPage, getWeather, PROMPT, runQuery, writeNotes } from './scenario.mjs';

const stub = createOpenAICompatible({ name: 'stub', baseURL: process.env.OPENAI_BASE_URL, apiKey: 'stub', includeUsage: true });
const make = (id, description, field, execute) =>
  createTool({ id, description, inputSchema: z.object({ [field]: z.string() }), execute: (input) => execute(input) });
const agent = new Agent({
  id: 'ops_agent',
  name: 'ops_agent',
  instructions: 'You are ops_agent.',
  model: stub('stub-model'),
  tools: {
    get_weather: make('get_weather', 'Get the current weather of a city.', 'city', getWeather),
    fetch_page: make('fetch_page', 'Fetch a web page.', 'url', fetchPage),
    run_query: make('run_query', 'Run a SQL query.', 'sql', runQuery),
  },
});
const endpoint = `${process.env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`;
const exporter = new OtelExporter({ provider: { custom: { endpoint, protocol: 'http/protobuf' } } });
const mastra = new Mastra({
  agents: { ops_agent: agent },
  observability: new Observability({ configs: { otel: { serviceName: 'recorded-agent', exporters: [exporter] } } }),
});
const metadata = { threadId: 'thread-ma-1', userId: 'user-7', sessionId: 'sess-ma-1' };
await mastra.getAgent('ops_agent').generate(PROMPT, { maxSteps: 40, tracingOptions: { metadata } });
await mastra.observability.shutdown();
writeNotes(['@mastra/core', '@mastra/observability', '@mastra/otel-exporter'], { instrumentation: 'native', metadata });
process.exit(0);
