// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// A dollar as tests want it: USDC's interface (EIP-3009, 6 digits), minted by anyone.
contract TestDollar is ERC3009 {
    constructor(string memory name_, string memory version_) ERC20(name_, "USDC") EIP712(name_, version_) {}

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function version() external view returns (string memory) {
        return _EIP712Version();
    }

    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}

/// A dollar that does not refuse an authorization which was used: it does nothing, and says that all is well.
contract CarelessDollar is TestDollar {
    constructor(string memory name_, string memory version_) TestDollar(name_, version_) {}

    function _transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce
    ) internal override {
        if (authorizationState(from, nonce)) return;
        super._transferWithAuthorization(from, to, value, validAfter, validBefore, nonce);
    }
}

/// A token that answers nothing where a bool is due, as old ones do.
contract SilentToken {
    mapping(address => uint256) public balanceOf;

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    function transfer(address to, uint256 amount) external {
        balanceOf[msg.sender] -= amount;
        balanceOf[to] += amount;
    }
}

/// A token that says yes and moves nothing.
contract LyingToken {
    function balanceOf(address) external pure returns (uint256) {
        return 5;
    }

    function transfer(address, uint256) external pure returns (bool) {
        return true;
    }
}
