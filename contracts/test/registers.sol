// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// What the tests need of ERC-8004's validation registry, written from its interface.
contract TestValidation {
    struct Status {
        address validator;
        uint256 agentId;
        uint8 response;
        bytes32 responseHash;
        string tag;
        uint256 lastUpdate;
    }

    event ValidationRequest(
        address indexed validatorAddress, uint256 indexed agentId, string requestURI, bytes32 indexed requestHash
    );

    uint256 public count;
    mapping(bytes32 => Status) private statuses;

    function validationRequest(
        address validatorAddress,
        uint256 agentId,
        string calldata requestURI,
        bytes32 requestHash
    ) external {
        require(statuses[requestHash].validator == address(0), "exists");
        statuses[requestHash] = Status(validatorAddress, agentId, 0, bytes32(0), "", block.timestamp);
        ++count;
        emit ValidationRequest(validatorAddress, agentId, requestURI, requestHash);
    }

    function getValidationStatus(bytes32 requestHash)
        external
        view
        returns (address, uint256, uint8, bytes32, string memory, uint256)
    {
        Status memory s = statuses[requestHash];
        require(s.validator != address(0), "unknown");
        return (s.validator, s.agentId, s.response, s.responseHash, s.tag, s.lastUpdate);
    }
}

/// What the tests need of ENS's NameWrapper: names below one parent, set by whoever owns it.
contract TestNameWrapper {
    mapping(uint256 => address) public ownerOf;
    mapping(uint256 => address) public resolverOf;
    uint256 public count;

    constructor(bytes32 parentNode, address owner) {
        ownerOf[uint256(parentNode)] = owner;
    }

    function setSubnodeRecord(
        bytes32 parentNode,
        string calldata label,
        address owner,
        address resolver,
        uint64,
        uint32,
        uint64
    ) external returns (bytes32 node) {
        require(ownerOf[uint256(parentNode)] == msg.sender, "Unauthorised");
        node = keccak256(abi.encodePacked(parentNode, keccak256(bytes(label))));
        ownerOf[uint256(node)] = owner;
        resolverOf[uint256(node)] = resolver;
        ++count;
    }
}

/// A token of ERC-7857 in its two generations.
contract TestInft {
    struct IntelligentData {
        string dataDescription;
        bytes32 dataHash;
    }

    mapping(uint256 => bytes32) private hashes;

    constructor(uint256 tokenId, bytes32 dataHash) {
        hashes[tokenId] = dataHash;
    }

    function intelligentDataOf(uint256 tokenId) external view returns (IntelligentData[] memory data) {
        require(hashes[tokenId] != bytes32(0), "no such token");
        data = new IntelligentData[](2);
        data[0] = IntelligentData("a key, sealed for its owner, longer than one word of the ABI", bytes32(uint256(7)));
        data[1] = IntelligentData("manifest", hashes[tokenId]);
    }
}

contract TestInftOfHashes {
    mapping(uint256 => bytes32) private hashes;

    constructor(uint256 tokenId, bytes32 dataHash) {
        hashes[tokenId] = dataHash;
    }

    function dataHashesOf(uint256 tokenId) external view returns (bytes32[] memory data) {
        require(hashes[tokenId] != bytes32(0), "no such token");
        data = new bytes32[](1);
        data[0] = hashes[tokenId];
    }
}
