// What the compiled contracts can do, against what they are said to do: every function in the ABI, every opcode that could
// move code or ether. With --write, the creation code that the program's own tests deploy is written to ../tests/golden/evm.
import { readFileSync, writeFileSync, mkdirSync } from 'node:fs';

const artifact = (file, name) => JSON.parse(readFileSync(`out/${file}/${name}.json`, 'utf8'));
const expected = {
  MindxtrainRegistry: { file: 'mindxtrain_registry.sol', changing: ['anchor(bytes32,bytes32,string)'], reading: ['entryOf(address,bytes32)'], events: ['Anchored'] },
  X402Receiver: { file: 'x402_receiver.sol', changing: ['forward(address)'], reading: ['forwarded(address)', 'payee()', 'runId()'], events: ['Forwarded'] },
};
// CALLCODE, DELEGATECALL, CREATE, CREATE2, SELFDESTRUCT: a contract without them is what it was born as. CALL is the
// receiver's transfer; it sends no ether (checked by the tests).
const forbidden = { 0xf2: 'CALLCODE', 0xf4: 'DELEGATECALL', 0xf0: 'CREATE', 0xf5: 'CREATE2', 0xff: 'SELFDESTRUCT' };

function opcodes(hex) {
  const code = Buffer.from(hex.replace(/^0x/, ''), 'hex');
  const seen = new Set();
  for (let i = 0; i < code.length; ++i) {
    seen.add(code[i]);
    if (code[i] >= 0x60 && code[i] <= 0x7f) i += code[i] - 0x5f;
  }
  return seen;
}

let bad = 0;
const complain = (text) => { console.error(text); bad = 1; };
for (const [name, want] of Object.entries(expected)) {
  const a = artifact(want.file, name);
  const signature = (f) => `${f.name}(${f.inputs.map((i) => i.type).join(',')})`;
  const functions = a.abi.filter((e) => e.type === 'function');
  const of = (changing) => functions.filter((f) => /view|pure/.test(f.stateMutability) !== changing).map(signature).sort();
  for (const [what, got, should] of [['changing', of(true), want.changing], ['reading', of(false), want.reading], ['event', a.abi.filter((e) => e.type === 'event').map((e) => e.name), want.events]])
    if (JSON.stringify(got) !== JSON.stringify(should)) complain(`${name}: ${what}: ${got} instead of ${should}`);
  if (a.abi.some((e) => e.stateMutability === 'payable' || e.type === 'receive' || e.type === 'fallback')) complain(`${name}: takes ether or unknown calls`);
  const ops = opcodes(a.deployedBytecode.object);
  for (const [op, text] of Object.entries(forbidden)) if (ops.has(Number(op))) complain(`${name}: its code holds ${text}`);
  if (name === 'MindxtrainRegistry' && ops.has(0xf1)) complain(`${name}: its code calls others`);
}

const golden = '../tests/golden/evm/contracts.json';
const codes = JSON.stringify({
  registry: artifact('mindxtrain_registry.sol', 'MindxtrainRegistry').bytecode.object,
  receiver: artifact('x402_receiver.sol', 'X402Receiver').bytecode.object,
  test_dollar: artifact('token.sol', 'TestDollar').bytecode.object,
  careless_dollar: artifact('token.sol', 'CarelessDollar').bytecode.object,
  test_identity: artifact('identity.sol', 'TestIdentity').bytecode.object,
  test_validation: artifact('registers.sol', 'TestValidation').bytecode.object,
  test_name_wrapper: artifact('registers.sol', 'TestNameWrapper').bytecode.object,
  test_inft: artifact('registers.sol', 'TestInft').bytecode.object,
  test_inft_of_hashes: artifact('registers.sol', 'TestInftOfHashes').bytecode.object,
  test_permit2: artifact('permit2.sol', 'TestPermit2').bytecode.object,
  test_upto_proxy: artifact('permit2.sol', 'TestUptoProxy').bytecode.object,
}, null, 1) + '\n';
if (process.argv.includes('--write')) {
  mkdirSync('../tests/golden/evm', { recursive: true });
  writeFileSync(golden, codes);
} else if (readFileSync(golden, 'utf8') !== codes) {
  complain(`${golden}: is not what these sources compile to: node tools/inspect.mjs --write`);
}
process.exit(bad);
