// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

struct TokenPermissions {
    address token;
    uint256 amount;
}

struct PermitTransferFrom {
    TokenPermissions permitted;
    uint256 nonce;
    uint256 deadline;
}

struct SignatureTransferDetails {
    address to;
    uint256 requestedAmount;
}

struct Witness {
    address to;
    address facilitator;
    uint256 validAfter;
}

/// What the tests need of Uniswap's Permit2, written from its specification: a permit with a witness, unordered nonces. The
/// original's code is in no package that can be installed here; a test puts this at the original's address.
contract TestPermit2 {
    mapping(address owner => mapping(uint256 word => uint256 bits)) public nonceBitmap;

    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 witness,
        string calldata witnessType,
        bytes calldata signature
    ) external {
        require(block.timestamp <= permit.deadline, "SignatureExpired");
        require(details.requestedAmount <= permit.permitted.amount, "InvalidAmount");
        uint256 bit = 1 << (permit.nonce & 255);
        require(nonceBitmap[owner][permit.nonce >> 8] & bit == 0, "InvalidNonce");
        nonceBitmap[owner][permit.nonce >> 8] |= bit;
        bytes32 hash = structHash(permit, witness, witnessType);
        require(signer(hash, signature) == owner, "InvalidSigner");
        require(IERC20(permit.permitted.token).transferFrom(owner, details.to, details.requestedAmount), "transfer");
    }

    function structHash(PermitTransferFrom calldata permit, bytes32 witness, string calldata witnessType)
        private
        view
        returns (bytes32)
    {
        bytes32 typehash = keccak256(
            abi.encodePacked(
                "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,",
                witnessType
            )
        );
        bytes32 token = keccak256(
            abi.encode(
                keccak256("TokenPermissions(address token,uint256 amount)"),
                permit.permitted.token,
                permit.permitted.amount
            )
        );
        return keccak256(abi.encode(typehash, token, msg.sender, permit.nonce, permit.deadline, witness));
    }

    function signer(bytes32 hash, bytes calldata signature) private view returns (address who) {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)"),
                keccak256("Permit2"),
                block.chainid,
                address(this)
            )
        );
        (bytes32 r, bytes32 s) = abi.decode(signature[:64], (bytes32, bytes32));
        who = ecrecover(keccak256(abi.encodePacked("\x19\x01", domain, hash)), uint8(signature[64]), r, s);
        require(who != address(0), "InvalidSignature");
    }
}

/// x402's proxy for `upto`, likewise: only the facilitator that the payer named may settle, for at most what was permitted.
contract TestUptoProxy {
    TestPermit2 constant PERMIT2 = TestPermit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);

    event Settled();

    function settle(
        PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        require(msg.sender == witness.facilitator, "UnauthorizedFacilitator");
        require(block.timestamp >= witness.validAfter, "PaymentTooEarly");
        bytes32 hash = keccak256(
            abi.encode(
                keccak256("Witness(address to,address facilitator,uint256 validAfter)"),
                witness.to,
                witness.facilitator,
                witness.validAfter
            )
        );
        PERMIT2.permitWitnessTransferFrom(
            permit,
            SignatureTransferDetails(witness.to, amount),
            owner,
            hash,
            "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)",
            signature
        );
        emit Settled();
    }
}
