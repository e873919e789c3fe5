// Connects one of the TypeScript clients to a server over stdio, lists its tools, makes the calls it is told to, and
// prints what came back as one JSON object.
//
//   node drive.js CLIENT PLAN     CLIENT: sdk, client-legacy, client-modern; PLAN: {"command", "args", "calls"} as JSON

const information = { name: 'coretools-client-checks', version: '1.0.0' };

const connectors = {
  async sdk(server) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    return connected(new Client(information), new StdioClientTransport(server));
  },
  'client-legacy': (server) => negotiated(server, 'legacy'),
  'client-modern': (server) => negotiated(server, { pin: '2026-07-28' }),
};

async function negotiated(server, mode) {
  const { Client } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  return connected(new Client(information, { versionNegotiation: { mode } }), new StdioClientTransport(server));
}

async function connected(client, transport) {
  client.onerror = (error) => {
    throw error;
  };
  await client.connect(transport);
  return client;
}

const [name, plan] = process.argv.slice(2);
const { command, args, calls } = JSON.parse(plan);
const client = await connectors[name]({ command, args });
const { tools } = await client.listTools();
const results = [];
for (const call of calls) {
  results.push(await client.callTool({ name: call.name, arguments: call.arguments }));
}
console.log(
  JSON.stringify({ era: client.getProtocolEra?.() ?? 'legacy', server: client.getServerVersion(), tools, results }),
);
await client.close();
