// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// The few of forge's cheat codes that the tests use.
interface Vm {
    function prank(address sender) external;
    function assume(bool condition) external pure;
    function warp(uint256 time) external;
    function deal(address who, uint256 wei_) external;
    function expectRevert(bytes calldata reason) external;
    function expectEmit(bool topic1, bool topic2, bool topic3, bool data, address emitter) external;
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function addr(uint256 key) external pure returns (address);
    function envOr(string calldata name, bytes32 otherwise) external view returns (bytes32);
    function envOr(string calldata name, address otherwise) external view returns (address);
    function startBroadcast() external;
    function stopBroadcast() external;
}

abstract contract Check {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    function same(bytes32 a, bytes32 b) internal pure {
        require(a == b, "bytes32 differ");
    }

    function same(uint256 a, uint256 b) internal pure {
        require(a == b, "numbers differ");
    }

    function same(string memory a, string memory b) internal pure {
        require(keccak256(bytes(a)) == keccak256(bytes(b)), "texts differ");
    }
}
