// The official x402 client against a server of ours: node pay.mjs URL KEY exact|upto 1|2. Prints the answer and what the server says
// of the payment, as one JSON.
import { x402Client, wrapFetchWithPayment } from '@x402/fetch';
import { ExactEvmScheme, UptoEvmScheme } from '@x402/evm';
import { ExactEvmSchemeV1 } from '@x402/evm/v1';
import { privateKeyToAccount } from 'viem/accounts';

const [url, key, scheme, version] = process.argv.slice(2);
const account = privateKeyToAccount(key);
const client = new x402Client();
if (version === '1') client.registerV1('base-sepolia', new ExactEvmSchemeV1(account));
else client.register('eip155:84532', scheme === 'upto' ? new UptoEvmScheme(account) : new ExactEvmScheme(account));
// A server that offers both versions in one 402 is read as version 2: a client of version 1 knows no such header.
const inner = async (input, init) => {
  const r = await fetch(input, init);
  if (version !== '1' || r.status !== 402) return r;
  const headers = new Headers(r.headers);
  headers.delete('PAYMENT-REQUIRED');
  return new Response(await r.arrayBuffer(), { status: r.status, headers });
};
const paid = wrapFetchWithPayment(inner, client);
const r = await paid(url, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 8 }),
});
const header = r.headers.get('PAYMENT-RESPONSE') ?? r.headers.get('X-PAYMENT-RESPONSE');
const text = await r.text();
console.log(JSON.stringify({ status: r.status, answer: text, payment: header && JSON.parse(atob(header)) }));
process.exit(r.status === 200 ? 0 : 1);
