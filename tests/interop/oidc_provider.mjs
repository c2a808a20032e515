// npm's `oidc-provider`, with one client, whose id and secret are arguments. Ann logs in, and is asked nothing.
//
// It prints its issuer when it listens.

import { createServer } from 'node:http';

import Provider from 'oidc-provider';

const [client_id, client_secret] = process.argv.slice(2);
const server = createServer();
await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
const issuer = `http://127.0.0.1:${server.address().port}`;
const person = { email: 'ann@x.org', email_verified: true, name: 'Ann' };

const provider = new Provider(issuer, {
  clients: [{ client_id, client_secret, grant_types: ['authorization_code', 'refresh_token'], redirect_uris: [`${issuer}/unused`] }],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
  cookies: { keys: ['key-of-the-cookies'] },
  features: { devInteractions: { enabled: false } },
  issueRefreshToken: () => true,
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...person }) })
});
// The ports of those who come back are not known when it starts.
provider.Client.prototype.redirectUriAllowed = () => true;
const handle = provider.callback();

server.on('request', async (request, response) => {
  if (!request.url.startsWith('/interaction/')) return handle(request, response);
  const { prompt, params, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') return provider.interactionFinished(request, response, { login: { accountId: 'person-1' } });
  const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: 'person-1', clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  await provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
});
console.log(issuer);
