"""An algod for tests, strict where the real one is: python algod.py ACCOUNTS.json prints its port and answers until it is killed.

ACCOUNTS.json: {"asset": ID, "decimals": 6, "genesis": base64, "accounts": {ADDRESS: {"algos": N, "asset": N or absent}}}. Transactions are decoded by
py-algorand-sdk; their signatures (PyNaCl), group ids, fees, validity, balances, opt-ins and that none is sent twice are checked. A group is confirmed in
the round after it came. GET /balance/ADDRESS tells the asset's units, /algos/ADDRESS its microalgos; POST /lose makes the next answer to a group vanish after it was taken.
"""
import base64
import copy
import http.server
import json
import sys
import threading

from algosdk import constants, encoding, transaction
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

state = json.load(open(sys.argv[1]))
accounts, asset = state["accounts"], state["asset"]
confirmed, pool, round_, lose = {}, {}, 1000, False
lock = threading.Lock()


class Refused(Exception):
    pass


def signed(raw):
    out, at = [], 0
    import msgpack
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
    unpacker.feed(raw)
    for item in unpacker:
        end = unpacker.tell()
        piece = raw[at:end]
        at = end
        stx = encoding.msgpack_decode(base64.b64encode(piece).decode())
        if not isinstance(stx, transaction.SignedTransaction):
            raise Refused("msgpack: no signed transaction")
        if base64.b64decode(encoding.msgpack_encode(stx)) != piece:
            raise Refused("msgpack: not canonical")
        out.append(stx)
    if not out:
        raise Refused("no transactions")
    return out


def group_id(group):
    bare = copy.deepcopy([g.transaction for g in group])
    for t in bare:
        t.group = None
    return transaction.calculate_group_id(bare)


def check(stx, group):
    t = stx.transaction
    if not stx.signature:
        raise Refused("signedtxn has no sig")
    message = constants.txid_prefix + base64.b64decode(encoding.msgpack_encode(t))
    try:
        VerifyKey(encoding.decode_address(t.sender)).verify(message, base64.b64decode(stx.signature))
    except BadSignatureError:
        raise Refused("At least one signature didn't pass verification")
    if t.genesis_hash != state["genesis"]:
        raise Refused("genesis hash mismatch")
    if not t.first_valid_round <= round_ <= t.last_valid_round:
        raise Refused(f"txn dead: round {round_} outside of {t.first_valid_round}--{t.last_valid_round}")
    if t.get_txid() in confirmed or t.get_txid() in pool:
        raise Refused(f"transaction already in ledger: {t.get_txid()}")
    if (len(group) > 1 or t.group) and t.group != group_id(group):
        raise Refused("incomplete group")


def calculate(group):
    after = json.loads(json.dumps(accounts))
    if sum(stx.transaction.fee for stx in group) < 1000 * len(group):  # one may pay for the others
        raise Refused("fee too small")
    for stx in group:
        t = stx.transaction
        after[t.sender]["algos"] -= t.fee
        if after[t.sender]["algos"] < 0:
            raise Refused("overspend")
        if isinstance(t, transaction.AssetTransferTxn):
            if t.index != asset:
                raise Refused(f"asset {t.index} does not exist")
            for who in (t.sender, t.receiver):
                if after.get(who, {}).get("asset") is None:
                    raise Refused(f"asset {asset} missing from {who}")
            after[t.sender]["asset"] -= t.amount
            after[t.receiver]["asset"] += t.amount
            if after[t.sender]["asset"] < 0:
                raise Refused("underflow on subtracting")
    return after


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        global round_, accounts
        path = self.path.split("?")[0]
        with lock:
            if path == "/v2/transactions/params":
                return self.answer(200, {"consensus-version": "future", "fee": 0, "min-fee": 1000, "last-round": round_,
                                         "genesis-id": "test-v1", "genesis-hash": state["genesis"]})
            if path == f"/v2/assets/{asset}":
                return self.answer(200, {"index": asset, "params": {"name": "USDC", "unit-name": "USDC", "total": 10**15,
                                                                    "creator": next(iter(accounts)), "decimals": state["decimals"]}})
            if path.startswith("/v2/transactions/pending/"):
                txid = path.rsplit("/", 1)[1]
                if txid in pool:
                    round_ += 1
                    confirmed[txid] = round_
                    del pool[txid]
                elif txid not in confirmed:
                    return self.answer(404, {"message": "could not find the transaction in the transaction pool or in the last 1000 confirmed rounds"})
                return self.answer(200, {"confirmed-round": confirmed[txid], "pool-error": ""})
            if path.startswith("/v2/status"):
                return self.answer(200, {"last-round": round_})
            if path.startswith("/balance/"):
                return self.answer(200, accounts.get(path.rsplit("/", 1)[1], {}).get("asset"))
            if path.startswith("/algos/"):
                return self.answer(200, accounts.get(path.rsplit("/", 1)[1], {}).get("algos"))
        self.answer(404, {"message": "no such route"})

    def do_POST(self):
        global accounts, lose
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with lock:
            if self.path == "/lose":
                lose = True
                return self.answer(200, {})
            if self.path != "/v2/transactions":
                return self.answer(404, {"message": "no such route"})
            try:
                group = signed(body)
                for stx in group:
                    check(stx, group)
                accounts = calculate(group)
            except Refused as e:
                return self.answer(400, {"message": f"TransactionPool.Remember: {e}"})
            except Exception as e:  # what the decoder throws
                return self.answer(400, {"message": f"msgpack decode error: {e}"})
            for stx in group:
                pool[stx.transaction.get_txid()] = True
            if lose:
                lose = False
                self.close_connection = True
                return
            self.answer(200, {"txId": group[0].transaction.get_txid()})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
