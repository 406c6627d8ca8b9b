// Vercel AI SDK 5 or 6 (experimental_telemetry) or 7 (@ai-sdk/otel).
// npm: ai @ai-sdk/openai-compatible zod @opentelemetry/sdk-trace-node @opentelemetry/resources
//   @opentelemetry/exporter-trace-otlp-proto @opentelemetry/exporter-trace-otlp-http, and @ai-sdk/otel with ai 7 (node 22).
// usage: vercel_ai.mjs v5|v6|v7|v7-legacy generate|stream proto|json [nocontent]
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import * as ai from 'ai';
import { z } from 'zod';
import { fetchPage, getWeather, PROMPT, runQuery, writeNotes } from './scenario.mjs';

const [version, how, encoding, content] = process.argv.slice(2);
const exporters = await import(`@opentelemetry/exporter-trace-otlp-${encoding === 'json' ? 'http' : 'proto'}`);
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'recorded-agent' }),
  spanProcessors: [new BatchSpanProcessor(new exporters.OTLPTraceExporter())],
});
provider.register();

const record = content !== 'nocontent';
const options = { recordInputs: record, recordOutputs: record, functionId: 'ops_agent' };
const telemetry = {};
if (version === 'v5' || version === 'v6') {
  const metadata = { sessionId: 'sess-ai-1', userId: 'user-7' };
  telemetry.experimental_telemetry = { isEnabled: true, metadata, ...options };
} else {
  const otel = await import('@ai-sdk/otel');
  ai.registerTelemetry(version === 'v7' ? new otel.OpenTelemetry() : new otel.LegacyOpenTelemetry());
  telemetry.telemetry = { ...options, includeRuntimeContext: { sessionId: true, userId: true } };
  telemetry.runtimeContext = { sessionId: 'sess-ai-1', userId: 'user-7' };
}

const text = (name) => z.object({ [name]: z.string() });
const stub = createOpenAICompatible({ name: 'stub', baseURL: process.env.OPENAI_BASE_URL, apiKey: 'stub', includeUsage: true });
const request = {
  model: stub('stub-model'),
  system: 'You are ops_agent.',
  prompt: PROMPT,
  stopWhen: ai.stepCountIs(40),
  tools: {
    get_weather: ai.tool({ description: 'Get the current weather of a city.', inputSchema: text('city'), execute: getWeather }),
    fetch_page: ai.tool({ description: 'Fetch a web page.', inputSchema: text('url'), execute: fetchPage }),
    run_query: ai.tool({ description: 'Run a SQL query.', inputSchema: text('sql'), execute: runQuery }),
  },
  ...telemetry,
};
if (how === 'stream') await ai.streamText(request).consumeStream();
else await ai.generateText(request);
await provider.forceFlush();
await provider.shutdown();
const packages = ['ai', '@ai-sdk/openai-compatible', '@opentelemetry/sdk-trace-node'];
writeNotes(version.startsWith('v7') ? [...packages, '@ai-sdk/otel'] : packages, { instrumentation: version, api: how });
