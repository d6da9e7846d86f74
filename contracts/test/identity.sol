// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// What the tests need of ERC-8004's identity registry, written from its interface.
contract TestIdentity {
    struct MetadataEntry {
        string metadataKey;
        bytes metadataValue;
    }

    event Registered(uint256 indexed agentId, string agentURI, address indexed owner);

    uint256 public count;
    mapping(uint256 => address) public ownerOf;
    mapping(uint256 => string) public tokenURI;
    mapping(uint256 => mapping(string => bytes)) private metadata;

    function register(string calldata agentURI, MetadataEntry[] calldata entries) external returns (uint256 agentId) {
        agentId = ++count;
        ownerOf[agentId] = msg.sender;
        tokenURI[agentId] = agentURI;
        for (uint256 i = 0; i < entries.length; ++i) {
            metadata[agentId][entries[i].metadataKey] = entries[i].metadataValue;
        }
        emit Registered(agentId, agentURI, msg.sender);
    }

    function setMetadata(uint256 agentId, string calldata key, bytes calldata value) external {
        require(ownerOf[agentId] == msg.sender, "not authorized");
        metadata[agentId][key] = value;
    }

    function getMetadata(uint256 agentId, string calldata key) external view returns (bytes memory) {
        return metadata[agentId][key];
    }
}
