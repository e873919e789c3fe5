// Two authorization servers by oidc-provider, and a hand on them: a line of JSON on stdin is a wish, a line on stdout the
// answer. The first has a path in its issuer; `sign` makes tokens that no honest server makes, with its own keys.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { CompactSign, exportJWK, exportSPKI, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

const SECRET = 'a secret of at least thirty-two characters';
const RESOURCE = 'http://127.0.0.1:8765/mcp';
const ALGORITHMS = ['RS256', 'ES256'];

async function keysFor(name, number) {
  return Promise.all(
    ALGORITHMS.map(async (algorithm) => {
      const pair = await generateKeyPair(algorithm, { extractable: true });
      const kid = `${name}-${number}-${algorithm}`;
      return { kid, algorithm, ...pair, jwk: { ...(await exportJWK(pair.privateKey)), kid, use: 'sig', alg: algorithm } };
    }),
  );
}

function client(client_id, more = {}) {
  return {
    client_id,
    client_secret: SECRET,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
    ...more,
  };
}

const SIGNED_BY = { curve: 'ES256' };
const TEAMS = { ci: 'builders', stranger: 'gardeners' };

class Server {
  constructor(name, path) {
    this.name = name;
    this.path = path;
    this.number = 0;
    this.requests = [];
    this.isDown = false;
    this.held = null;
    this.http = createServer((request, response) => this.answer(request, response));
  }

  async start() {
    await new Promise((resolve) => this.http.listen(0, '127.0.0.1', resolve));
    this.issuer = `http://127.0.0.1:${this.http.address().port}${this.path}`;
    await this.rotate();
  }

  // New keys, as after a restart with another configuration; the old ones are gone.
  async rotate() {
    this.number += 1;
    this.keys = await keysFor(this.name, this.number);
    this.provider = new Provider(this.issuer, {
      clients: [
        client('ci', { scope: 'tools:read tools:write' }),
        client('curve', { scope: 'tools:read' }),
        client('stranger', { scope: 'tools:read' }),
      ],
      cookies: { keys: [SECRET] },
      jwks: { keys: this.keys.map((key) => key.jwk) },
      scopes: ['tools:read', 'tools:write'],
      features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        introspection: { enabled: false },
        resourceIndicators: {
          enabled: true,
          defaultResource: () => RESOURCE,
          getResourceServerInfo: (_, resource, { clientId }) => ({
            scope: 'tools:read tools:write',
            audience: resource,
            accessTokenFormat: 'jwt',
            accessTokenTTL: 600,
            jwt: { sign: { alg: SIGNED_BY[clientId] ?? 'RS256' } },
          }),
        },
      },
      extraTokenClaims: (_, token) => ({ team: TEAMS[token.clientId] }),
    });
    this.serve = this.provider.callback();
    return this.about();
  }

  answer(request, response) {
    this.requests.push(request.url);
    if (this.held !== null) {
      this.held.push(() => this.answered(request, response));
      return;
    }
    this.answered(request, response);
  }

  answered(request, response) {
    if (this.isDown) {
      response.destroy();
      return;
    }
    // The metadata of an issuer with a path stand before the path (RFC 8414); the rest is mounted beneath it.
    const wellKnown = `/.well-known/oauth-authorization-server${this.path}`;
    request.originalUrl = request.url;
    if (request.url === wellKnown) {
      request.originalUrl = `${this.path}/.well-known/oauth-authorization-server`;
      request.url = '/.well-known/oauth-authorization-server';
    } else if (request.url.startsWith(`${this.path}/`)) {
      request.url = request.url.slice(this.path.length);
    } else {
      response.writeHead(404).end();
      return;
    }
    this.serve(request, response);
  }

  async about() {
    const kids = this.keys.map((key) => key.kid);
    return { issuer: this.issuer, kids, publicKeys: await Promise.all(this.keys.map((key) => exportSPKI(key.publicKey))) };
  }

  // `payload` is text: what no JSON library writes can be signed too.
  async sign({ header, payload, secret }) {
    if (secret !== undefined) {
      const input = [JSON.stringify(header), payload].map((part) => Buffer.from(part).toString('base64url')).join('.');
      const signature = createHmac('sha256', secret).update(input).digest('base64url');
      return { token: `${input}.${header.alg === 'HS256' ? signature : ''}` };
    }
    const key = this.keys.find((one) => one.algorithm === header.alg);
    const signing = new CompactSign(new TextEncoder().encode(payload)).setProtectedHeader(header);
    return { token: await signing.sign(key.privateKey) };
  }

  async idToken({ subject, nonce }) {
    const audience = await this.provider.Client.find('ci');
    const token = new this.provider.IdToken({ sub: subject }, { client: audience });
    token.scope = 'openid';
    token.set('nonce', nonce);
    return { token: await token.issue({ use: 'idtoken' }) };
  }

  seen() {
    return { requests: this.requests.splice(0) };
  }

  hold() {
    this.held = [];
    return {};
  }

  release() {
    const held = this.held;
    this.held = null;
    held.forEach((answer) => answer());
    return {};
  }

  down({ value }) {
    this.isDown = value;
    return {};
  }
}

const servers = { first: new Server('first', '/tenant'), other: new Server('other', '') };
const about = {};
for (const [name, server] of Object.entries(servers)) {
  await server.start();
  about[name] = await server.about();
}
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
say({ ...about, resource: RESOURCE, secret: SECRET });
for await (const line of createInterface({ input: process.stdin })) {
  const { server, wish, ...more } = JSON.parse(line);
  say(await servers[server][wish](more));
}
process.exit(0);
