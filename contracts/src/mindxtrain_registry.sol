// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// Anchors of finished runs: who published what, and when at the latest it existed.
///
/// An entry belongs to who wrote it and is never changed: there is no owner, no setter and no upgrade. Entries are kept by
/// publisher, so nobody who sees a pending anchor can take its run id.
contract MindxtrainRegistry {
    struct Entry {
        bytes32 digest;
        uint64 time;
        string cid;
    }

    mapping(address publisher => mapping(bytes32 runId => Entry)) private entries;

    event Anchored(address indexed publisher, bytes32 indexed runId, bytes32 digest, string cid);

    error AlreadyAnchored(address publisher, bytes32 runId);
    error NoDigest();

    /// @param runId   the manifest's own BLAKE3 (predicate.integrity.blake3)
    /// @param digest  SHA-256 of the manifest's bytes; not zero
    /// @param cid     IPFS content id of the published folder, as text; may be empty
    function anchor(bytes32 runId, bytes32 digest, string calldata cid) external {
        if (digest == 0) revert NoDigest();
        Entry storage e = entries[msg.sender][runId];
        if (e.digest != 0) revert AlreadyAnchored(msg.sender, runId);
        e.digest = digest;
        e.time = uint64(block.timestamp);
        e.cid = cid;
        emit Anchored(msg.sender, runId, digest, cid);
    }

    /// All zero where `publisher` has anchored no such run. `time`: seconds since 1970, of the block.
    function entryOf(address publisher, bytes32 runId)
        external
        view
        returns (bytes32 digest, uint64 time, string memory cid)
    {
        Entry storage e = entries[publisher][runId];
        return (e.digest, e.time, e.cid);
    }
}
