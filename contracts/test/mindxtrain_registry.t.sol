// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {MindxtrainRegistry} from "../src/mindxtrain_registry.sol";
import {Check} from "./vm.sol";

contract RegistryTest is Check {
    MindxtrainRegistry registry;
    address constant ALICE = address(0xA11CE);
    address constant BOB = address(0xB0B);

    event Anchored(address indexed publisher, bytes32 indexed runId, bytes32 digest, string cid);

    function setUp() public {
        registry = new MindxtrainRegistry();
    }

    function expect(address publisher, bytes32 id, bytes32 digest, uint64 time, string memory cid) internal view {
        (bytes32 d, uint64 t, string memory c) = registry.entryOf(publisher, id);
        same(d, digest);
        same(t, time);
        same(c, cid);
    }

    function test_an_anchor_is_read_back_with_its_time_and_told() public {
        vm.warp(1_700_000_000);
        vm.expectEmit(true, true, false, true, address(registry));
        emit Anchored(ALICE, bytes32(uint256(1)), bytes32(uint256(2)), "bafy");
        vm.prank(ALICE);
        registry.anchor(bytes32(uint256(1)), bytes32(uint256(2)), "bafy");
        expect(ALICE, bytes32(uint256(1)), bytes32(uint256(2)), 1_700_000_000, "bafy");
    }

    function test_nobody_can_take_the_id_of_a_pending_anchor() public {
        vm.prank(BOB); // saw Alice's transaction and was faster
        registry.anchor(bytes32(uint256(1)), bytes32(uint256(99)), "other");
        vm.prank(ALICE);
        registry.anchor(bytes32(uint256(1)), bytes32(uint256(2)), "bafy");
        expect(ALICE, bytes32(uint256(1)), bytes32(uint256(2)), uint64(block.timestamp), "bafy");
        expect(BOB, bytes32(uint256(1)), bytes32(uint256(99)), uint64(block.timestamp), "other");
    }

    function test_an_entry_without_a_digest_is_refused() public {
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.NoDigest.selector));
        registry.anchor(bytes32(uint256(1)), 0, "bafy");
    }

    function testFuzz_an_entry_is_written_once(
        address publisher,
        bytes32 id,
        bytes32 first,
        bytes32 second,
        string calldata cid,
        address stranger
    ) public {
        vm.assume(first != 0 && second != 0 && stranger != publisher);
        uint64 time = uint64(block.timestamp);
        vm.prank(publisher);
        registry.anchor(id, first, cid);
        vm.warp(block.timestamp + 1000);
        vm.prank(publisher);
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.AlreadyAnchored.selector, publisher, id));
        registry.anchor(id, second, "again");
        vm.prank(stranger);
        registry.anchor(id, second, "mine");
        expect(publisher, id, first, time, cid);
    }

    function testFuzz_it_takes_no_ether_and_no_other_call(bytes4 selector, bytes calldata rest, uint96 wei_) public {
        vm.assume(selector != MindxtrainRegistry.anchor.selector && selector != MindxtrainRegistry.entryOf.selector);
        vm.deal(address(this), wei_);
        (bool ok,) = address(registry).call{value: wei_}(bytes.concat(selector, rest));
        require(!ok, "an unknown call succeeded");
    }

    function testFuzz_anchoring_takes_no_ether(uint96 wei_) public {
        vm.assume(wei_ > 0);
        vm.deal(address(this), wei_);
        bytes memory call = abi.encodeCall(MindxtrainRegistry.anchor, (bytes32(uint256(1)), bytes32(uint256(2)), ""));
        (bool ok,) = address(registry).call{value: wei_}(call);
        require(!ok, "ether was taken");
    }
}

/// Anchors for random publishers and remembers what was written first.
contract RegistryHandler is Check {
    MindxtrainRegistry public immutable registry;

    struct First {
        address publisher;
        bytes32 id;
        bytes32 digest;
        uint64 time;
    }

    First[] public written;
    mapping(address => mapping(bytes32 => bool)) there;

    constructor(MindxtrainRegistry r) {
        registry = r;
    }

    function anchor(uint8 publisher, uint8 id, bytes32 digest, uint16 later) external {
        vm.warp(block.timestamp + later);
        address who = address(uint160(publisher) + 1);
        bytes32 run = bytes32(uint256(id) % 8);
        vm.prank(who);
        try registry.anchor(run, digest, "cid") {
            require(digest != 0 && !there[who][run], "written twice, or empty");
            there[who][run] = true;
            written.push(First(who, run, digest, uint64(block.timestamp)));
        } catch {
            require(digest == 0 || there[who][run], "refused without a reason");
        }
    }

    function count() external view returns (uint256) {
        return written.length;
    }
}

contract RegistryInvariant is Check {
    MindxtrainRegistry registry;
    RegistryHandler handler;

    function setUp() public {
        registry = new MindxtrainRegistry();
        handler = new RegistryHandler(registry);
    }

    function targetContracts() public view returns (address[] memory list) {
        list = new address[](1);
        list[0] = address(handler);
    }

    function invariant_what_was_written_first_stays() public view {
        for (uint256 i = 0; i < handler.count(); ++i) {
            (address publisher, bytes32 id, bytes32 digest, uint64 time) = handler.written(i);
            (bytes32 d, uint64 t, string memory c) = registry.entryOf(publisher, id);
            same(d, digest);
            same(t, time);
            same(c, "cid");
        }
    }
}
