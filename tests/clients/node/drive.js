// Connects one of the TypeScript clients to a server, lists its tools, makes the calls it is told to, and prints what
// came back as one JSON object.
//
//   node drive.js CLIENT PLAN     CLIENT: sdk, client-legacy, client-modern
//
// PLAN is JSON: {"calls"} and either {"command", "args"}, for stdio, or {"url", "headers"}, for Streamable HTTP.

const information = { name: 'coretools-client-checks', version: '1.0.0' };

const connectors = {
  async sdk(plan) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    if (plan.url) {
      const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
      return connected(new Client(information), overHttp(StreamableHTTPClientTransport, plan));
    }
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    return connected(new Client(information), new StdioClientTransport(plan));
  },
  'client-legacy': (plan) => negotiated(plan, 'legacy'),
  'client-modern': (plan) => negotiated(plan, { pin: '2026-07-28' }),
};

async function negotiated(plan, mode) {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const client = new Client(information, { versionNegotiation: { mode } });
  return connected(
    client,
    plan.url ? overHttp(StreamableHTTPClientTransport, plan) : new StdioClientTransport(plan),
  );
}

function overHttp(Transport, { url, headers }) {
  return new Transport(new URL(url), { requestInit: { headers } });
}

async function connected(client, transport) {
  client.onerror = (error) => {
    throw error;
  };
  await client.connect(transport);
  return client;
}

const [name, text] = process.argv.slice(2);
const { calls, ...plan } = JSON.parse(text);
const client = await connectors[name](plan);
const { tools } = await client.listTools();
const results = [];
const progress = [];
for (const call of calls) {
  const onprogress = call.is_watched ? ({ message }) => progress.push(message) : undefined;
  const options = onprogress && { onprogress };
  const request = { name: call.name, arguments: call.arguments };
  // The two generations of the SDK have the options in different places.
  results.push(await (name === 'sdk' ? client.callTool(request, undefined, options) : client.callTool(request, options)));
}
const era = client.getProtocolEra?.() ?? 'legacy';
console.log(JSON.stringify({ era, server: client.getServerVersion(), tools, results, progress }));
client.onerror = undefined; // closing breaks off the stream of a session, which 1.x takes for an error
await client.close();
