// The official x402 client on Algorand: node pay_algorand.mjs PACKAGES 402.json SEED_HEX ALGOD_URL prints the value of PAYMENT-SIGNATURE for the
// offer in 402.json (what PAYMENT-REQUIRED holds, decoded).
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [packages, offer, seed, algodUrl] = process.argv.slice(2)
const require = createRequire(join(resolve(packages), 'x.js'))
const load = name => import(pathToFileURL(require.resolve(name)))
const { x402Client } = await load('@x402/core/client')
const { ExactAvmScheme } = await load('@x402/avm/exact/client')
const { default: nacl } = await load('tweetnacl')
const algosdk = await load('algosdk')
const sdk = algosdk.default ?? algosdk

const keys = nacl.sign.keyPair.fromSeed(Buffer.from(seed, 'hex'))
const address = sdk.encodeAddress(keys.publicKey)
const signer = {
  address,
  signTransactions: async (txns, indexes) => txns.map((bytes, i) => {
    if (indexes && !indexes.includes(i)) return null
    const txn = sdk.decodeUnsignedTransaction(bytes)
    return sdk.signTransaction(txn, keys.secretKey).blob
  })
}
const required = JSON.parse(readFileSync(offer, 'utf8'))
const client = new x402Client()
client.register(required.accepts[0].network, new ExactAvmScheme(signer, { algodUrl, algodToken: '' }))
const payload = await client.createPaymentPayload(required)
console.log(Buffer.from(JSON.stringify(payload)).toString('base64'))
