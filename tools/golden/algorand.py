"""Transactions, ids, groups and signatures by py-algorand-sdk, for tests/pay/algorand_test.cc:
  pip install py-algorand-sdk && python tools/golden/algorand.py > tests/golden/pay/algorand.json
"""
import base64
import json

from algosdk import encoding, transaction
from nacl.signing import SigningKey

GENESIS = "SGO1GKSzyE7IEPItTxCByw9x8FmnrCDexi9/cOUJOiI="
seeds = [bytes([n]) * 32 for n in (0x11, 0x22)]
keys = [SigningKey(s) for s in seeds]
addresses = [encoding.encode_address(bytes(k.verify_key)) for k in keys]
private = [base64.b64encode(bytes(k) + bytes(k.verify_key)).decode() for k in keys]


def parameters(fee=1000, first=1000):
    return transaction.SuggestedParams(fee, first, first + 10, GENESIS, gen="test-v1", flat_fee=True)


def transfer(amount, note=b"", fee=1000, first=1000, **more):
    return transaction.AssetTransferTxn(addresses[0], parameters(fee, first), addresses[1], amount, 10458941, note=note or None, **more)


cases = {
    "transfer": [transfer(2000)],
    "note": [transfer(1, b"x" * 300)],
    "large": [transfer(2**63 + 5, first=2**33)],
    "nothing": [transfer(0)],
    "lease": [transfer(7, lease=b"l" * 32)],
    "closing": [transfer(5, close_assets_to=addresses[1])],
    "payment": [transaction.PaymentTxn(addresses[1], parameters(), addresses[0], 70000)],
    "group": [transaction.PaymentTxn(addresses[1], parameters(2000), addresses[1], 0), transfer(2000, fee=1000)],
}
out = {"seeds": [s.hex() for s in seeds], "addresses": addresses, "genesis": GENESIS, "cases": {}}
for name, group in cases.items():
    if len(group) > 1:
        transaction.assign_group_id(group)
    rows = []
    for t in group:
        signer = addresses.index(t.sender)
        rows.append({"signer": signer, "id": t.get_txid(), "unsigned": encoding.msgpack_encode(t), "signed": encoding.msgpack_encode(t.sign(private[signer]))})
    bare = [encoding.msgpack_decode(r["unsigned"]) for r in rows]
    for b in bare:
        b.group = None
    out["cases"][name] = {"transactions": rows, "group": base64.b64encode(transaction.calculate_group_id(bare)).decode()}
print(json.dumps(out, indent=1))
